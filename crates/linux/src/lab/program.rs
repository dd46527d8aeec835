//! Programs that live in the nodes of a lab: what is known of one, and what is to be started.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::sys::process::ProcessIdentity;

/// A program that lives in a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProgram {
    /// The node.
    pub node: String,
    /// What it is: `null`, `switch`, `ovs`, `ovsdb`, `controller`.
    pub role: String,
    /// The process.
    pub process: ProcessIdentity,
    /// Where it can be called by OpenFlow, if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openflow: Option<PathBuf>,
    /// The unix socket where it tells its counters, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<PathBuf>,
    /// What it says.
    pub log: PathBuf,
}

impl NodeProgram {
    /// It lives.
    pub fn alive(&self) -> bool {
        self.process.alive()
    }

    /// The last line that it said, for people.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
    }
}

/// What is to be started.
#[derive(Debug, Clone, Default)]
pub struct ProgramLaunch {
    /// The file.
    pub file: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What its environment has besides this process's.
    pub environment: Vec<(String, OsString)>,
    /// Where it will listen for OpenFlow, if it will.
    pub openflow: Option<PathBuf>,
    /// Where it will tell its counters, if it will.
    pub counters: Option<PathBuf>,
}
