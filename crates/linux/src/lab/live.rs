//! A lab's life: up, found again by another command, down.
//!
//! Three kinds of life, all of which end without a trace:
//! - **ephemeral**: belongs to the process that built it and goes when the value is dropped, or at the next command if
//!   the process was killed;
//! - **persistent, root**: namespaces are pinned under `/run/netns`, so nobody has to live;
//! - **persistent, not root**: no user may pin anything, so the process that built it (the holder) stays and holds the
//!   namespaces; its death is the lab's death.

use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Child;

use record::unit::some_names;
use record::{Problem, Result};
use serde::{Deserialize, Serialize};

use super::build;
use super::cables::{self, CABLES, Cable};
use super::claim;
use super::node::Node;
use super::parse::{LONGEST_NAME, is_file_name};
use super::program::NodeProgram;
use super::step::LabStep;
use super::topology::{InterfaceSpec, LinkSpec, Prefix, Topology};
use crate::journal::{Journal, Journals, Record};
use crate::sys::process::ProcessIdentity;
use crate::sys::{mount, netns, userns};

/// How long a lab lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the value is dropped.
    Ephemeral,
    /// Until it is taken down; without root, as long as this process lives.
    Persistent,
}

/// What a lab is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Somebody is building it.
    Building,
    /// It is up until it is taken down.
    Up,
    /// It is up until it is taken down, and a process holds it.
    Held,
    /// It is up as long as the process that uses it lives.
    Owned,
    /// What undoes it cannot be read any more, or somebody deleted a namespace of it (`gone`).
    Damaged,
}

/// One line of the list of labs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabInfo {
    /// The lab's name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// Its nodes; empty while it is being built.
    pub nodes: Vec<String>,
    /// Those of its nodes whose namespace somebody deleted; taking the lab down removes the rest.
    #[serde(default)]
    pub gone: Vec<String>,
    /// Number of links; 0 while it is being built.
    pub links: usize,
    /// The process that builds, owns or holds it; none when no process has to live.
    pub owner: Option<u32>,
    /// The process that measures in it, although it did not build it.
    #[serde(default)]
    pub user: Option<u32>,
    /// The programs that live in its nodes.
    pub programs: Vec<ProgramInfo>,
}

/// A program that belongs to a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// The node that it lives in.
    pub node: String,
    /// What it is: `null`, `switch`, `ovs`, `ovsdb`, `controller`.
    pub role: String,
    /// Process id.
    pub pid: u32,
    /// It lives.
    pub alive: bool,
    /// Where it can be called by OpenFlow (`unix:PATH`), if it can.
    pub openflow: Option<String>,
    /// Where it tells its counters (`unix:PATH`), if it does.
    #[serde(default)]
    pub counters: Option<String>,
}

impl From<&NodeProgram> for ProgramInfo {
    fn from(program: &NodeProgram) -> ProgramInfo {
        let unix = |path: &std::path::PathBuf| format!("unix:{}", path.display());
        ProgramInfo {
            node: program.node.clone(),
            role: program.role.clone(),
            pid: program.process.pid,
            alive: program.alive(),
            openflow: program.openflow.as_ref().map(unix),
            counters: program.counters.as_ref().map(unix),
        }
    }
}

/// What a journal says of a lab that is complete.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct About {
    topology: String,
    nodes: Vec<AboutNode>,
    held: bool,
    // What an earlier version called them.
    #[serde(default, alias = "tenants")]
    programs: Vec<NodeProgram>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct AboutNode {
    name: String,
    netns: u64,
    handle: PathBuf,
}

/// A lab, while it is built and when it is up.
#[derive(Debug)]
pub struct Lab {
    name: String,
    topology: Topology,
    nodes: Vec<Node>,
    pub(super) journals: Journals,
    /// The journal of a lab that goes with this value.
    pub(super) journal: Option<Journal>,
    /// The namespaces are held by this process alone.
    holds: bool,
    /// The lock of a lab that this process uses and did not build.
    claim: Option<fs::File>,
    pub(super) programs: Vec<NodeProgram>,
    /// Those of the programs that this process started.
    pub(super) children: Vec<Child>,
    /// The cards that its links are made of, while it is built.
    cables: Vec<Cable>,
}

impl Lab {
    /// Builds a lab and waits until it is up and silent.
    ///
    /// # Errors
    /// An input problem when the name is taken or impossible; a host problem when the machine refuses. Then nothing is
    /// left of the lab.
    pub fn up(journals: &Journals, topology: &Topology, name: &str, lifetime: Lifetime) -> Result<Lab> {
        Lab::up_with(journals, topology, name, lifetime, &mut |lab| {
            let unserved = lab.topology.nodes.iter().find(|node| node.forwarder.is_some());
            unserved.map_or(Ok(()), |node| {
                Err(Problem::input("nobody is there to start the program of this node")
                    .at(format!("node {}", node.name))
                    .help("use a topology of hosts, routers and bridges"))
            })
        })
    }

    /// Builds a lab and starts programs in it ([`Lab::start`]) before it counts as up. They end with it.
    ///
    /// # Errors
    /// As [`Lab::up`], and those of `start`.
    pub fn up_with(
        journals: &Journals,
        topology: &Topology,
        name: &str,
        lifetime: Lifetime,
        start: &mut dyn FnMut(&mut Lab) -> Result<()>,
    ) -> Result<Lab> {
        check_name(name)?;
        let root = userns::outer_uid() == 0;
        let persistent = lifetime == Lifetime::Persistent;
        let journal = journals.begin(name, persistent && root)?.ok_or_else(|| {
            Problem::input(format!("there is already a lab named '{name}'"))
                .help(format!("take it down with 'pathlab lab down {name}', or give this one another name"))
        })?;
        // A return from here on takes down what is built; a step that cannot be undone stays in the journal for the next command.
        let mut lab = Lab::new(journals, name, topology.clone());
        (lab.journal, lab.holds) = (Some(journal), !root);
        let held = persistent && !root;
        lab.build(held)?;
        start(&mut lab)?;
        lab.complete(held)?;
        if persistent {
            lab.journal = None;
        }
        Ok(lab)
    }

    /// One of which nothing is there.
    fn new(journals: &Journals, name: &str, topology: Topology) -> Lab {
        Lab {
            name: name.into(),
            topology,
            nodes: vec![],
            journals: journals.clone(),
            journal: None,
            holds: false,
            claim: None,
            programs: vec![],
            children: vec![],
            cables: vec![],
        }
    }

    /// Makes the namespaces and builds. `held`: the lab lives as long as this process.
    fn build(&mut self, held: bool) -> Result<()> {
        if held {
            let own = ProcessIdentity::own().map_err(|e| Problem::host(format!("cannot read /proc: {e}")))?;
            self.will([LabStep::Process { process: own }])?;
        }
        self.cables = cables::choose(&self.topology)?;
        if self.holds && !self.cables.is_empty() {
            return Err(Problem::host("only root may move the cards of this machine").at(CABLES));
        }
        for spec in &self.topology.nodes {
            let made = netns::create()
                .and_then(|netns| Node::new(&spec.name, netns, declared(&self.topology, &spec.name)));
            self.nodes.push(made.map_err(namespace_problem)?);
        }
        if !self.holds {
            self.pin_all()?;
        }
        build::build(&self.topology, &self.nodes, &self.cables)
    }

    /// Says in the journal that the lab is complete.
    fn complete(&mut self, held: bool) -> Result<()> {
        let about = |node: &Node| AboutNode {
            name: node.name().into(),
            netns: node.inode(),
            handle: self.handle(node),
        };
        let about = About {
            topology: self.topology.to_string(),
            nodes: self.nodes.iter().map(about).collect(),
            held,
            programs: self.programs.clone(),
        };
        self.journal.as_mut().map_or(Ok(()), |journal| journal.complete(&about))
    }

    /// Writes into the journal what would undo the next change.
    pub(super) fn will(&mut self, steps: impl IntoIterator<Item = LabStep>) -> Result<()> {
        let complete = || Problem::host("the lab is complete").at(format!("lab {}", self.name));
        self.journal.as_mut().ok_or_else(complete)?.will(steps)
    }

    /// By which path other processes reach the namespace of a node.
    fn handle(&self, node: &Node) -> PathBuf {
        match self.holds {
            true => format!("/proc/{}/fd/{}", std::process::id(), node.netns().as_raw_fd()).into(),
            false => Path::new(mount::NETNS_DIRECTORY).join(format!("pathlab-{}-{}", self.name, node.name())),
        }
    }

    /// Pins every namespace; the journal learns of the pins and of the links before the first one is made.
    fn pin_all(&mut self) -> Result<()> {
        let mut steps = vec![];
        for node in &self.nodes {
            let file = self.handle(node);
            if fs::symlink_metadata(&file).is_ok() {
                return Err(Problem::host(
                    "there is already a namespace of that name, and it is not this lab's",
                )
                .at(file.display().to_string())
                .help("give the lab another name, or remove it with 'ip netns del'"));
            }
            steps.push(LabStep::Unpin { file, netns: node.inode() });
        }
        steps.extend(self.deletable().map(|(node, index, name)| LabStep::Link {
            file: self.handle(node),
            netns: node.inode(),
            index,
            name,
        }));
        steps.extend(cables::steps(&self.topology, &self.nodes, &self.cables, |node| self.handle(node)));
        self.will(steps)?;
        // Where it cannot be shared, pins are still found when somebody mounts over them.
        let _ = mount::share_directory(Path::new(mount::NETNS_DIRECTORY));
        for node in &self.nodes {
            let file = self.handle(node);
            mount::pin(node.netns().as_fd(), &file).map_err(|error| {
                Problem::host(format!("cannot pin a namespace: {error}"))
                    .at(file.display().to_string())
                    .help("this needs CAP_SYS_ADMIN and a writable /run")
            })?;
        }
        Ok(())
    }

    /// What is deleted when the lab goes, by node, index and place: the first end of every link, and the interfaces over others, which a
    /// process that stays in a node would keep.
    fn deletable(&self) -> impl Iterator<Item = (&Node, u32, String)> {
        // Cards are given back and not deleted.
        let links = self.topology.links.iter().filter(|_| self.cables.is_empty());
        let ends = links.map(|LinkSpec { ends: [end, _] }| end);
        let uppers = self.topology.uppers.iter().map(|upper| &upper.interface);
        ends.chain(uppers).filter_map(|spec: &InterfaceSpec| {
            let index = self.topology.index_of(&spec.node, &spec.name)?;
            Some((Node::named(&self.nodes, &spec.node)?, index, spec.place()))
        })
    }

    /// Finds a lab that is up. Without root, [`join_user_namespace`] comes first.
    ///
    /// # Errors
    /// An input problem when there is no such lab, a host problem when a part of it is gone.
    pub fn open(journals: &Journals, name: &str) -> Result<Lab> {
        let (_, about) = find(journals, name)?;
        let mut lab = Lab::new(journals, name, Topology::parse(&about.topology, name)?);
        for node in &about.nodes {
            let file = mount::pinned(&node.handle, node.netns);
            let found = file.and_then(|file| {
                Node::new(&node.name, file.into(), declared(&lab.topology, &node.name)).ok()
            });
            lab.nodes.push(found.ok_or_else(|| {
                Problem::host(format!("the namespace of node '{}' is gone", node.name))
                    .at(format!("lab {name}"))
                    .help(format!("take the rest down with 'pathlab lab down {name}'"))
            })?);
        }
        lab.programs = about.programs;
        Ok(lab)
    }

    /// Finds a lab that is up, to use it alone: until this value goes, nobody takes the lab down or uses it, too. Whoever only
    /// looks at it, or runs a program in it, is not kept out.
    ///
    /// # Errors
    /// As [`Lab::open`], and an input problem that names the process which uses the lab.
    pub fn claim(journals: &Journals, name: &str) -> Result<Lab> {
        let (record, about) = find(journals, name)?;
        refuse_owned(&record, &about, name)?;
        let claim = Some(claim::claim(journals, name)?);
        let mut lab = Lab::open(journals, name)?;
        lab.claim = claim;
        Ok(lab)
    }

    /// Takes the lab down.
    ///
    /// # Errors
    /// A host problem when something could not be undone; it is tried again by the next command.
    pub fn down(mut self) -> Result<()> {
        if self.holds {
            self.release();
        }
        drop(self.claim.take());
        let undone = match self.journal.take() {
            Some(journal) => journal.undo(),
            None => take_down(&self.journals, &self.name).map(drop),
        };
        self.reap();
        undone
    }

    /// Waits for those of its programs that were this process's children and have ended.
    fn reap(&mut self) {
        self.children.iter_mut().for_each(|child| drop(child.try_wait()));
    }

    /// Deletes every link of a lab whose namespaces this process holds; the namespaces go with the process.
    pub fn release(&mut self) {
        for (node, index, _) in self.deletable() {
            // What cannot be deleted goes with its namespace a moment later.
            let _ = node.ask(|netlink| netlink.delete(index));
        }
    }

    /// Every lab of this user, sorted by name.
    pub fn list(journals: &Journals) -> Vec<LabInfo> {
        let known = |name: String| match journals.read(&name) {
            Ok(None) => None,
            Ok(Some(record)) if is_of_another_kind(&record) => None,
            read => Some(info(journals, name, read.ok().flatten())),
        };
        journals.names().into_iter().filter_map(known).collect()
    }

    /// The programs that live in its nodes.
    pub fn programs(&self) -> &[NodeProgram] {
        &self.programs
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was built from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its nodes, in the order of the topology.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of that name.
    ///
    /// # Errors
    /// An input problem that lists the nodes.
    pub fn node(&self, name: &str) -> Result<&Node> {
        Node::named(&self.nodes, name).ok_or_else(|| {
            let names: Vec<_> = self.nodes.iter().map(Node::name).collect();
            Problem::input(format!("unknown node '{name}'"))
                .at(format!("lab {}", self.name))
                .help(format!("the nodes are {}", some_names(&names)))
        })
    }

    /// The address (4 or 6) by which others reach the node; none when it has none or there is no such node.
    pub fn address_of(&self, node: &str, family: u8) -> Option<IpAddr> {
        Node::named(&self.nodes, node)?.addresses(family).into_iter().next()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            if self.holds {
                self.release();
            }
            // What fails stays in the journal, and the next command tries again.
            let _ = journal.undo();
        }
        self.reap();
    }
}

fn declared(topology: &Topology, node: &str) -> Vec<Prefix> {
    topology.interfaces(node).flat_map(|interface| interface.addresses.iter().copied()).collect()
}

fn namespace_problem(error: std::io::Error) -> Problem {
    let problem = Problem::host(format!("cannot make a network namespace: {error}"));
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            problem.help("this needs CAP_SYS_ADMIN; run as root, or as a user who may make user namespaces")
        }
        Some(libc::ENOSPC) => problem.help("raise the sysctl user.max_net_namespaces"),
        _ => problem.remedy(&error),
    }
}

fn check_name(name: &str) -> Result<()> {
    if !is_file_name(name) || name.len() > LONGEST_NAME {
        return Err(Problem::input(format!("'{name}' cannot be the name of a lab")).help(format!(
            "give one with --name: 1 to {LONGEST_NAME} letters, digits, '_', '-' and '.', a letter or digit first"
        )));
    }
    Ok(())
}

/// It undoes settings, and nothing of a lab.
fn is_of_another_kind(record: &Record) -> bool {
    let is_of_lab = |step| LabStep::deserialize(step).is_ok();
    !record.steps.is_empty() && !record.steps.iter().any(is_of_lab)
}

/// The record of a lab that is complete.
fn find(state: &Journals, name: &str) -> Result<(Record, About)> {
    check_name(name)?;
    let Some(record) = state.read(name)? else {
        let names = state.names();
        let problem = Problem::input(format!("there is no lab named '{name}'"));
        return Err(match names.is_empty() {
            true => problem.help("build one with 'pathlab lab up FILE'"),
            false => problem.help(format!("the labs are {}", some_names(&names))),
        });
    };
    match about(&record) {
        Some(about) => Ok((record, about)),
        None => Err(Problem::input(format!(
            "the lab '{name}' is still being built by process {}",
            record.header.owner.pid
        ))
        .help("wait until it is up, or end that process")),
    }
}

/// What was built; none while that goes on.
fn about(record: &Record) -> Option<About> {
    serde_json::from_value(record.complete.clone()?).ok()
}

/// What a journal says of a lab; none when it cannot be read.
fn info(journals: &Journals, name: String, record: Option<Record>) -> LabInfo {
    let about = record.as_ref().and_then(about);
    let is_gone = |node: &&AboutNode| mount::pinned(&node.handle, node.netns).is_none();
    let nodes = about.iter().flat_map(|about| &about.nodes);
    let gone: Vec<String> = nodes.filter(is_gone).map(|node| node.name.clone()).collect();
    let pinned = record.as_ref().is_some_and(|record| record.header.persistent);
    let state = match (&record, &about) {
        (None, _) => State::Damaged,
        (_, Some(_)) if pinned && !gone.is_empty() => State::Damaged,
        (Some(_), None) => State::Building,
        _ if pinned => State::Up,
        (_, Some(about)) if about.held => State::Held,
        _ => State::Owned,
    };
    let links = about.as_ref().and_then(|about| Topology::parse(&about.topology, "").ok());
    let owner = record.filter(|_| !pinned || state == State::Building).map(|record| record.header.owner.pid);
    LabInfo {
        state,
        programs: about.iter().flat_map(|about| &about.programs).map(ProgramInfo::from).collect(),
        nodes: about.into_iter().flat_map(|about| about.nodes).map(|node| node.name).collect(),
        links: links.map_or(0, |topology| topology.links.len()),
        gone: if state == State::Damaged { gone } else { vec![] },
        owner,
        user: claim::user(journals, &name),
        name,
    }
}

/// A process that lives in a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProcess {
    /// The node.
    pub node: String,
    /// Process id.
    pub pid: u32,
    /// The process's name.
    pub process: String,
}

/// Refuses a lab that goes with another process, which lives.
fn refuse_owned(record: &Record, about: &About, name: &str) -> Result<()> {
    let owner = &record.header.owner;
    if !record.header.persistent && !about.held && owner.alive() && owner.pid != std::process::id() {
        return Err(Problem::input(format!("the lab '{name}' belongs to process {}, which runs", owner.pid))
            .help("it goes when that process ends"));
    }
    Ok(())
}

/// Takes a lab down by its name, whatever state it is in. Returns the processes that live in its nodes; they are not
/// ended, and what is left of their namespaces goes when they end.
///
/// # Errors
/// An input problem when there is no such lab, it belongs to a process that runs, or somebody uses it; a host problem when
/// something could not be undone.
pub fn take_down(journals: &Journals, name: &str) -> Result<Vec<NodeProcess>> {
    let (record, about) = find(journals, name)?;
    refuse_owned(&record, &about, name)?;
    let _claim = claim::claim(journals, name)?;
    let owner = &record.header.owner;
    let mut living = vec![];
    for node in &about.nodes {
        let inside = crate::sys::process::in_namespace(node.netns).into_iter();
        let own = |pid: u32| about.programs.iter().any(|program| program.process.pid == pid);
        let others = inside.filter(|(pid, _)| *pid != owner.pid && !own(*pid));
        living.extend(others.map(|(pid, process)| NodeProcess { node: node.name.clone(), pid, process }));
    }
    journals.undo(name)?;
    Ok(living)
}

/// Becomes root of a new user namespace, in which labs can be built without being root. Call it first of all, while the
/// process has one thread. Nothing happens for root.
///
/// # Errors
/// A host problem that says which setting forbids it.
pub fn enter_user_namespace() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    userns::enter_new().map_err(|(step, error)| {
        let setting = |name: &str| {
            fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim().to_string()
        };
        let problem = Problem::host(format!("this user may not make a user namespace: {step}: {error}"));
        let closed = [
            ("kernel/unprivileged_userns_clone", "0", "1"),
            ("user/max_user_namespaces", "0", "10000"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
        ];
        let why = closed.into_iter().find(|(name, forbidding, _)| setting(name) == *forbidding);
        problem.help(match why {
            Some((name, now, then)) => {
                let name = name.replace('/', ".");
                format!("{name} is {now}: run as root, or 'sysctl -w {name}={then}' as root")
            }
            None => "run as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN".into(),
        })
    })
}

/// Enters the user namespace of a lab that another process of this user holds, so that [`Lab::open`] can use it. Call
/// it first of all, while the process has one thread. Nothing happens when the lab is root's own, and when there is no
/// such lab (opening it says so).
///
/// # Errors
/// A host problem when the holder is gone.
pub fn join_user_namespace(journals: &Journals, name: &str) -> Result<()> {
    if userns::outer_uid() == 0 {
        return Ok(());
    }
    let Ok((record, _)) = find(journals, name) else { return Ok(()) };
    userns::join(record.header.owner.pid).map_err(|error| {
        Problem::host(format!(
            "cannot enter the user namespace of process {}: {error}",
            record.header.owner.pid
        ))
        .at(format!("lab {name}"))
        .help(format!("if that process is gone, 'pathlab lab down {name}' removes the rest"))
    })
}
