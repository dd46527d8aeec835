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

/// The parts of an Open vSwitch.
#[derive(Debug, Clone)]
pub struct Installed {
    daemon: PathBuf,
    database: PathBuf,
    database_tool: PathBuf,
    control: PathBuf,
    schema: PathBuf,
}

impl Installed {
    /// Finds it.
    ///
    /// # Errors
    /// Host: what is missing.
    pub fn find() -> Result<Installed> {
        let own = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let roots: Vec<PathBuf> = own.into_iter().chain([PathBuf::from("/")]).collect();
        Installed::below(&roots)
    }

    fn below(roots: &[PathBuf]) -> Result<Installed> {
        let find = |folders: &[&str], name: &str| {
            let places = roots.iter().flat_map(|root| folders.iter().map(move |folder| root.join(folder)));
            places.map(|folder| folder.join(name)).find(|file| file.is_file()).ok_or_else(|| {
                Problem::host(format!("Open vSwitch is not installed here: there is no {name}"))
                    .help(format!("install openvswitch-switch, or name its unpacked folder in ${VARIABLE}"))
            })
        };
        Ok(Installed {
            daemon: find(&FOLDERS, "ovs-vswitchd")?,
            database: find(&FOLDERS, "ovsdb-server")?,
            database_tool: find(&FOLDERS, "ovsdb-tool")?,
            control: find(&FOLDERS, "ovs-vsctl")?,
            schema: find(&SHARED, "vswitch.ovsschema")?,
        })
    }

    /// Starts it in a node.
    ///
    /// # Errors
    /// Host: a part of it does not start. Input: it refuses a rule.
    pub fn start(&self, house: &mut Lab, node: &NodeSpec, forwarder: &Forwarder, dpid: u64) -> Result<()> {
        let folder = house.folder(&node.name)?;
        let (data, meeting) = (folder.join("conf.db"), folder.join("controller"));
        self.run(
            &self.database_tool,
            &folder,
            [OsString::from("create"), data.clone().into()],
            Some(&self.schema),
        )?;
        let remote = folder.join("db.sock");
        let words = vec![data.into(), prefixed("--remote=punix:", &remote)];
        let database = house.start(&node.name, "ovsdb", daemon(&self.database, &folder, "db", words))?;
        wait_for_answer(&database, &remote)?;
        self.configure(
            &folder,
            "--no-wait init -- set Open_vSwitch . other_config:userspace-tso-enable=true",
        )?;
        // Without the kernel's datapath: it is not looked for, and nothing of it is removed.
        let words = vec![prefixed("unix:", &remote), "--disable-system".into()];
        let socket = folder.join("br0.mgmt");
        let program =
            ProgramLaunch { openflow: Some(socket.clone()), ..daemon(&self.daemon, &folder, "ovs", words) };
        let tenant = house.start(&node.name, "ovs", program)?;
        wait_for_answer(&tenant, &folder.join("ovs.ctl"))?;
        let controller = controller(house, node, forwarder, &meeting)?;
        let fail = if forwarder.standalone { "standalone" } else { "secure" };
        let mut line = format!(
            "add-br br0 -- set bridge br0 datapath_type=netdev protocols=OpenFlow13,OpenFlow14 fail-mode={fail} \
             other-config:disable-in-band=true other-config:datapath-id={dpid:016x}"
        );
        for (number, interface) in (1..).zip(interfaces(house, &node.name)) {
            line +=
                &format!(" -- add-port br0 {interface} -- set interface {interface} ofport_request={number}");
        }
        if controller.is_some() {
            line += &format!(" -- set-controller br0 unix:{}", meeting.display());
        }
        self.configure(&folder, &line)?;
        fill(&tenant, controller.as_ref(), &socket, forwarder)
    }

    /// Tells the database something, and waits until the daemon has done it.
    fn configure(&self, folder: &Path, line: &str) -> Result<()> {
        let words = [
            prefixed("--db=unix:", &folder.join("db.sock")),
            format!("--timeout={}", PATIENCE.as_secs()).into(),
        ];
        let words = words.into_iter().chain(line.split_whitespace().map(OsString::from));
        self.run(&self.control, folder, words, None)
    }

    /// Runs one of its tools to its end.
    fn run(
        &self,
        tool: &Path,
        folder: &Path,
        words: impl IntoIterator<Item = OsString>,
        last: Option<&Path>,
    ) -> Result<()> {
        let name = tool.display();
        let mut command = Command::new(tool);
        command.args(words).args(last).envs(environment(folder)).stdin(Stdio::null());
        let output = command.output().map_err(|e| Problem::host(format!("cannot run {name}: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = said.lines().next_back().unwrap_or("it said nothing").to_owned();
        Err(Problem::host(format!("{name} ended with {}: {said}", output.status)))
    }
}

/// Everything that it keeps is in the node's folder.
fn environment(folder: &Path) -> Vec<(String, OsString)> {
    let names = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"];
    names.map(|name| (name.to_owned(), folder.as_os_str().to_owned())).to_vec()
}

/// One of its daemons, in the foreground.
fn daemon(file: &Path, folder: &Path, name: &str, mut words: Vec<OsString>) -> ProgramLaunch {
    words.push(prefixed("--unixctl=", &folder.join(format!("{name}.ctl"))));
    ProgramLaunch {
        file: file.into(),
        arguments: words,
        environment: environment(folder),
        ..ProgramLaunch::default()
    }
}
