//! Labs: topology as data, built and taken down.
//!
//! **What.** A [`Topology`] (text, checked) becomes a [`Lab`] (namespaces and veth links, up and silent); the lab
//! knows its [`Node`]s, asks the kernel which way frames take ([`Lab::path`]) and compares itself with its text
//! ([`Lab::check`], [`Lab::check_routing`]).
//!
//! **Why.** A path that the program built itself can be taken apart counter by counter, repeated, and thrown away.
//! Everything goes through [`crate::journal`], so a lab never outlives the one who answers for it.
//!
//! **Price.** Root, or a user namespace ([`enter_user_namespace`]). A lab of root is visible to `ip netns exec
//! pathlab-LAB-NODE`; one in a user namespace is seen only through `pathlab lab exec`.

mod build;
mod cables;
mod check;
mod claim;
mod forwarder;
mod live;
mod load;
mod machine;
mod node;
mod own;
mod parse;
mod path;
mod program;
mod routing;
mod start;
mod step;
pub mod topology;

pub use build::LINK_DEADLINE;
pub use cables::CABLES;
pub use check::{CheckLine, RoutingCheck};
pub use forwarder::{Forwarder, ForwarderKind};
pub use live::{
    Lab, LabInfo, Lifetime, NodeProcess, ProgramInfo, State, enter_user_namespace, join_user_namespace,
    take_down,
};
pub use machine::{MachineNode, MachineSpec};
pub use node::Node;
pub(crate) use node::write_sysctl;
pub use own::become_node;
pub use parse::sysctl_key;
pub use path::DeadEnd;
pub use program::{NodeProgram, ProgramLaunch};
pub use step::LabStep;
pub use topology::{InterfaceSpec, NodeSpec, SysctlSpec, Topology};
