//! Open vSwitch as a peer: unpacked by `tests/peers.sh`, never a service of the machine. Its database and its daemon run in
//! a folder of the test and are ended by their process ids.
//!
//! The daemon is asked over its control socket (JSON-RPC 1.0), one connection for thousands of questions.

use crate::site::{Site, project};
use crate::support;
use linux::sys::{netns, process};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where `tests/peers.sh` unpacks the package `openvswitch-switch`.
const UNPACKED: &str = "target/peers/openvswitch";

/// Says why a test is skipped when Open vSwitch is not here; true then.
pub fn is_missing(what: &str) -> bool {
    let is_missing = !project(UNPACKED).join("usr/bin/ovs-vsctl").exists()
        || !support::installed("ovsdb-server")
        || !support::installed("ovs-ofctl");
    if is_missing {
        support::skip(
            what,
            "openvswitch-switch is not in target/peers/openvswitch (tests/peers.sh puts it there)",
        );
    }
    is_missing
}

/// A running Open vSwitch with one bridge, `br`, and what is needed to ask it.
pub struct Vswitch {
    folder: tempfile::TempDir,
    children: Vec<Child>,
    control: Option<UnixStream>,
    buffer: Vec<u8>,
}

impl Vswitch {
    /// A bridge with the ports 1 to `ports` that exist in its process only: frames are put into them by a control
    /// command, and what leaves goes to files. Needs no root and no namespace.
    pub fn in_memory(ports: u32) -> Vswitch {
        // With root it is shut into a namespace of its own, and dies with this test.
        let netns = support::is_root().then(|| Arc::new(netns::create().unwrap()));
        let start = |program: &str| {
            let mut command = support::command(program);
            if let Some(netns) = &netns {
                process::enter(&mut command, netns.clone(), false);
            }
            command
        };
        let mut own = Vswitch::begin(&start, &["--enable-dummy"]);
        let mut words: Vec<String> = bridge("dummy");
        for port in 1..=ports {
            let file = own.capture(port).display().to_string();
            let line = format!(
                "-- add-port br p{port} -- set interface p{port} type=dummy ofport_request={port} options:tx_pcap={file}"
            );
            words.extend(line.split(' ').map(str::to_owned));
        }
        own.vsctl(&start, &words);
        own.connect();
        own
    }

    /// A bridge in user space over the interfaces `p1`, `p2`, … of a site.
    pub fn in_site(site: &Site) -> Vswitch {
        let start = |program: &str| site.command(0, program);
        let mut own = Vswitch::begin(&start, &[]);
        let mut words = bridge("netdev");
        for port in 1..=site.hosts.len() {
            let line = format!("-- add-port br p{port} -- set interface p{port} ofport_request={port}");
            words.extend(line.split(' ').map(str::to_owned));
        }
        own.vsctl(&start, &words);
        own.connect();
        own
    }

    /// Changes its database, with the words of ovs-vsctl.
    pub fn set(&self, site: &Site, line: &str) {
        self.vsctl(
            &|program| site.command(0, program),
            &line.split(' ').map(str::to_owned).collect::<Vec<_>>(),
        );
    }

    /// Database and daemon, without a bridge.
    fn begin(start: &dyn Fn(&str) -> Command, options: &[&str]) -> Vswitch {
        let folder = tempfile::tempdir().unwrap();
        let mut own = Vswitch { folder, children: vec![], control: None, buffer: vec![] };
        let schema = project(UNPACKED).join("usr/share/openvswitch/vswitch.ovsschema");
        let mut create = own.command(start, "ovsdb-tool");
        create.arg("create").arg(own.path("conf.db")).arg(schema);
        must(create);
        let mut database = own.command(start, "ovsdb-server");
        database.arg(own.path("conf.db")).arg(format!("--remote=punix:{}", own.path("db.sock").display()));
        own.daemon(database, "db");
        own.wait_for("db.sock");
        // Both VLAN tags of a frame with two are to be seen: usually only one is.
        let line = "--no-wait init -- set Open_vSwitch . other_config:vlan-limit=0";
        own.vsctl(start, &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let program = project(UNPACKED).join("usr/lib/openvswitch-switch/ovs-vswitchd");
        let mut daemon = own.command(start, program.to_str().unwrap());
        daemon.arg(format!("unix:{}", own.path("db.sock").display())).arg("--disable-system").args(options);
        own.daemon(daemon, "vs");
        own.wait_for("vs.ctl");
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, start: &dyn Fn(&str) -> Command, program: &str) -> Command {
        let mut command = start(program);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, self.folder.path());
        }
        command
    }

    fn daemon(&mut self, mut command: Command, name: &str) {
        command.arg(format!("--unixctl={}", self.path(&format!("{name}.ctl")).display()));
        command.arg(format!("--log-file={}", self.path(&format!("{name}.log")).display()));
        command.arg("-vconsole:off").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.push(command.spawn().unwrap());
    }

    fn vsctl(&self, start: &dyn Fn(&str) -> Command, words: &[String]) {
        let program = project(UNPACKED).join("usr/bin/ovs-vsctl");
        let mut command = self.command(start, program.to_str().unwrap());
        command.arg(format!("--db=unix:{}", self.path("db.sock").display())).arg("--timeout=60").args(words);
        must(command);
    }

    fn wait_for(&self, name: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.path(name).exists() {
            assert!(Instant::now() < deadline, "{name} does not come: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the daemon wrote down.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("vs.log")).unwrap_or_default()
    }

    fn connect(&mut self) {
        self.control = Some(crate::client::call(&self.path("vs.ctl")));
        // Its cache of decisions with wildcards is sometimes too wide (a rule that sets an MPLS TTL gives the next frame the
        // traffic class of the first); what is compared is what it decides.
        self.ask(&[("upcall/disable-megaflows", vec![])]);
    }

    /// The process that forwards.
    pub fn process(&self) -> u32 {
        self.children[self.children.len() - 1].id()
    }

    /// Where OpenFlow clients call.
    pub fn socket(&self) -> PathBuf {
        self.path("br.mgmt")
    }

    /// Where everything is written that leaves by a port in memory.
    pub fn capture(&self, port: u32) -> PathBuf {
        self.path(&format!("p{port}.pcap"))
    }

    /// Gives the bridge these groups and rules instead of those that it has; what ovs-ofctl said when it refused them.
    pub fn load(&mut self, groups: &[String], rules: &[String]) -> Result<(), String> {
        let done = load(self.folder.path(), &self.socket(), groups, rules);
        // Cached decisions about former rules may still answer otherwise: a barrier does not empty the cache.
        self.ask(&[("revalidator/purge", vec![])]);
        done
    }

    /// Asks the daemon; all answers.
    pub fn ask(&mut self, questions: &[(&str, Vec<String>)]) -> Vec<String> {
        let mut answers = vec![];
        // Few at a time: both sides would wait for room otherwise.
        for some in questions.chunks(16) {
            let line = |(method, params): &(&str, Vec<String>)| {
                serde_json::json!({"id": 0, "method": method, "params": params}).to_string()
            };
            let text: String = some.iter().map(line).collect();
            self.control.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
            answers.extend((0..some.len()).map(|_| self.answer()));
        }
        answers
    }

    fn answer(&mut self) -> String {
        let mut room = [0; 1 << 16];
        loop {
            let mut values =
                serde_json::Deserializer::from_slice(&self.buffer).into_iter::<serde_json::Value>();
            if let Some(Ok(value)) = values.next() {
                let used = values.byte_offset();
                self.buffer.drain(..used);
                assert!(value["error"].is_null(), "Open vSwitch refused a command: {value}");
                return value["result"].as_str().unwrap_or_default().to_owned();
            }
            let count = self.control.as_mut().unwrap().read(&mut room).unwrap();
            assert!(count > 0, "Open vSwitch ended: {}", self.log());
            self.buffer.extend_from_slice(&room[..count]);
        }
    }
}

impl Drop for Vswitch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let from = log.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
            eprintln!("--- Open vSwitch\n{}", &log[from..]);
        }
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Gives any switch these groups and rules instead of those that it has, in one bundle of `ovs-ofctl`; what was said when
/// that was refused.
pub fn load(folder: &Path, socket: &Path, groups: &[String], rules: &[String]) -> Result<(), String> {
    let mut text = "flow delete\ngroup delete group_id=all\n".to_owned();
    text.extend(groups.iter().map(|line| format!("group add {line}\n")));
    text.extend(rules.iter().map(|line| format!("flow add {line}\n")));
    let file = folder.join("bundle");
    std::fs::write(&file, &text).unwrap();
    let mut command = support::command("ovs-ofctl");
    command.args(["-O", "OpenFlow14", "bundle", &format!("unix:{}", socket.display())]).arg(&file);
    let output = support::finish(support::start(command), Duration::from_secs(60));
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}\n{text}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn bridge(datapath: &str) -> Vec<String> {
    let line = format!(
        "add-br br -- set bridge br datapath_type={datapath} protocols=OpenFlow13,OpenFlow14 fail-mode=secure \
         other-config:disable-in-band=true other-config:datapath-id=0000000000000001"
    );
    line.split(' ').map(str::to_owned).collect()
}

fn must(command: Command) {
    let what = format!("{:?}", command.get_program());
    let output = support::finish(support::start(command), Duration::from_secs(60));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A capture file that grows, read from where the last reading ended.
pub struct Tail {
    path: PathBuf,
    at: usize,
}

impl Tail {
    /// From the first frame.
    pub fn new(path: &Path) -> Tail {
        // The header of the file.
        Tail { path: path.to_owned(), at: 24 }
    }

    /// The frames that came since.
    pub fn read(&mut self) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let mut frames = vec![];
        while let Some(head) = bytes.get(self.at..self.at + 16) {
            let length = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
            let Some(frame) = bytes.get(self.at + 16..self.at + 16 + length) else { break };
            frames.push(frame.to_vec());
            self.at += 16 + length;
        }
        frames
    }
}
