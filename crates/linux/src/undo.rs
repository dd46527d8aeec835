//! Undo on disk before every change.
