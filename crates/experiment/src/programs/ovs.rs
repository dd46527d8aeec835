//! Open vSwitch in a node, with its datapath in user space.
//!
//! **What.** A database and a daemon of the node's own, in the node's namespace and folder, with one bridge `br0` over the node's
//! links. Nothing of an Open vSwitch that the host may run is touched.
//!
//! **Where it is found.** In the folder that `$PATHLAB_OVS` names (the package, unpacked), then in the host's folders.
//!
//! **Price.** Offloads are left on as everywhere in a lab, so its datapath must carry super-frames and unfinished checksums:
//! `userspace-tso-enable` is switched on. Open vSwitch calls that experimental.

use super::start::{PATIENCE, interfaces, wait_for_answer};
use super::switch::{controller, fill, prefixed};
use linux::lab::{Forwarder, Lab, NodeSpec, ProgramLaunch};
use record::{Problem, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of an unpacked package.
const VARIABLE: &str = "PATHLAB_OVS";
/// Folders of programs, below the folder of the variable and below the root.
const FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "usr/lib/openvswitch-switch", "usr/local/sbin"];
/// Folders of the database's schema.
const SHARED: [&str; 2] = ["usr/share/openvswitch", "usr/local/share/openvswitch"];

/// The parts of an Open vSwitch that are used, and the folders where each may be.
const DAEMON: Part = ("ovs-vswitchd", &FOLDERS);
const DATABASE: Part = ("ovsdb-server", &FOLDERS);
const DATABASE_TOOL: Part = ("ovsdb-tool", &FOLDERS);
const CONTROL: Part = ("ovs-vsctl", &FOLDERS);
const SCHEMA: Part = ("vswitch.ovsschema", &SHARED);
type Part = (&'static str, &'static [&'static str]);

/// Sees that every part is installed.
///
/// # Errors
/// Host: what is missing.
pub fn check() -> Result<()> {
    [DAEMON, DATABASE, DATABASE_TOOL, CONTROL, SCHEMA].into_iter().try_for_each(|part| find(part).map(drop))
}

/// The file of a part.
fn find((name, folders): Part) -> Result<PathBuf> {
    let own = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let roots = own.into_iter().chain([PathBuf::from("/")]);
    let mut files = roots.flat_map(|root| folders.iter().map(move |folder| root.join(folder).join(name)));
    files.find(|file| file.is_file()).ok_or_else(|| {
        Problem::host(format!("Open vSwitch is not installed here: there is no {name}"))
            .help(format!("install openvswitch-switch, or name its unpacked folder in ${VARIABLE}"))
    })
}

/// Starts it in a node.
///
/// # Errors
/// Host: a part of it does not start. Input: it refuses a rule.
pub fn start(lab: &mut Lab, node: &NodeSpec, forwarder: &Forwarder, dpid: u64) -> Result<()> {
    let folder = lab.folder(&node.name)?;
    let remote = folder.join("db.sock");
    start_database(lab, node, &folder, &remote)?;
    // Without the kernel's datapath: it is not looked for, and nothing of it is removed.
    let words = vec![prefixed("unix:", &remote), "--disable-system".into()];
    let socket = folder.join("br0.mgmt");
    let program = ProgramLaunch { openflow: Some(socket.clone()), ..daemon(DAEMON, &folder, "ovs", words)? };
    let program = lab.start(&node.name, "ovs", program)?;
    wait_for_answer(&program, &folder.join("ovs.ctl"))?;
    let meeting = folder.join("controller");
    let controller = controller(lab, node, forwarder, &meeting)?;
    let fail = if forwarder.standalone { "standalone" } else { "secure" };
    let mut line = format!(
        "add-br br0 -- set bridge br0 datapath_type=netdev protocols=OpenFlow13,OpenFlow14 fail-mode={fail} \
         other-config:disable-in-band=true other-config:datapath-id={dpid:016x}"
    );
    // Its AF_XDP ports are polled by a thread that never sleeps.
    let kind = if forwarder.ports == "int" { "system" } else { "afxdp" };
    for (number, interface) in (1..).zip(interfaces(lab, &node.name)) {
        line += &format!(
            " -- add-port br0 {interface} -- set interface {interface} type={kind} ofport_request={number}"
        );
    }
    if controller.is_some() {
        line += &format!(" -- set-controller br0 unix:{}", meeting.display());
    }
    configure(&folder, &line)?;
    fill(&program, controller.as_ref(), &socket, forwarder)
}

/// Makes a database, and starts its server.
fn start_database(lab: &mut Lab, node: &NodeSpec, folder: &Path, remote: &Path) -> Result<()> {
    let data = folder.join("conf.db");
    run(DATABASE_TOOL, folder, ["create".into(), data.clone().into(), find(SCHEMA)?.into()])?;
    let words = vec![data.into(), prefixed("--remote=punix:", remote)];
    let database = lab.start(&node.name, "ovsdb", daemon(DATABASE, folder, "db", words)?)?;
    wait_for_answer(&database, remote)?;
    configure(folder, "--no-wait init -- set Open_vSwitch . other_config:userspace-tso-enable=true")
}

/// Tells the database something, and waits until the daemon has done it.
fn configure(folder: &Path, line: &str) -> Result<()> {
    let words =
        [prefixed("--db=unix:", &folder.join("db.sock")), format!("--timeout={}", PATIENCE.as_secs()).into()];
    run(CONTROL, folder, words.into_iter().chain(line.split_whitespace().map(OsString::from)))
}

/// Runs one of its tools to its end.
fn run(tool: Part, folder: &Path, words: impl IntoIterator<Item = OsString>) -> Result<()> {
    let tool = find(tool)?;
    let name = tool.display();
    let mut command = Command::new(&tool);
    command.args(words).envs(environment(folder)).stdin(Stdio::null());
    let output = command.output().map_err(|e| Problem::host(format!("cannot run {name}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = said.lines().next_back().unwrap_or("it said nothing").to_owned();
    Err(Problem::host(format!("{name} ended with {}: {said}", output.status)))
}

/// Everything that it keeps is in the node's folder.
fn environment(folder: &Path) -> Vec<(String, OsString)> {
    let names = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"];
    names.map(|name| (name.to_owned(), folder.as_os_str().to_owned())).to_vec()
}

/// One of its daemons, in the foreground.
fn daemon(file: Part, folder: &Path, name: &str, mut words: Vec<OsString>) -> Result<ProgramLaunch> {
    words.push(prefixed("--unixctl=", &folder.join(format!("{name}.ctl"))));
    let (file, environment) = (find(file)?.into(), environment(folder));
    Ok(ProgramLaunch { file, arguments: words, environment, ..ProgramLaunch::default() })
}
