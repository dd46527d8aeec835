//! Labs: topology as data, built and taken down.
