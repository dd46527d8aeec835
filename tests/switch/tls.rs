//! TLS: ovs-ofctl, ovs-testcontroller and our own clients with certificates that the test makes, and everything that is to fail: another
//! authority, old certificates, plain text, nonsense, a handshake that does not go on.
//!
//! All over loopback; each test has an address of its own.

use crate::client::{Client, PATIENCE, Running, add};
use crate::site::project;
use crate::support::{self, Kept, finish, installed, pathlab, skip, start};
use flow::openflow::bytes::Version;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use switch::config::{ControllerConfig, Listen, SwitchConfig};
use switch::control::SwitchNotice;
use switch::tls::TlsFiles;

/// An authority with a folder for the certificates that it signs.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// Key, certificate and authority of one end, as files.
#[derive(Clone)]
pub struct Papers {
    key: PathBuf,
    certificate: PathBuf,
    authority: PathBuf,
}

/// Each has a name of its own.
static AUTHORITIES: AtomicU32 = AtomicU32::new(1);

impl Authority {
    pub fn new() -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let mut wish = CertificateParams::new(vec![]).unwrap();
        // OpenSSL takes a certificate with the name of its authority for one that signed itself.
        let number = AUTHORITIES.fetch_add(1, Relaxed);
        wish.distinguished_name.push(DnType::CommonName, format!("authority {number} of a test"));
        wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = wish.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Authority { folder, issuer: Issuer::new(wish, key) }
    }

    pub fn papers(&self, name: &str) -> Papers {
        self.papers_until(name, 2100)
    }

    fn papers_until(&self, name: &str, year: i32) -> Papers {
        let mut wish = CertificateParams::new(vec![]).unwrap();
        wish.distinguished_name.push(DnType::CommonName, name);
        (wish.not_before, wish.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = wish.signed_by(&key, &self.issuer).unwrap();
        let file = |end: &str| self.folder.path().join(format!("{name}-{end}.pem"));
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        std::fs::write(file("cert"), certificate.pem()).unwrap();
        Papers { key: file("key"), certificate: file("cert"), authority: self.folder.path().join("ca.pem") }
    }
}

impl Papers {
    /// The same, believing another authority.
    fn believing(mut self, authority: &Authority) -> Papers {
        self.authority = authority.folder.path().join("ca.pem");
        self
    }

    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            private_key: Some(self.key.clone()),
            certificate: Some(self.certificate.clone()),
            ca_cert: Some(self.authority.clone()),
        }
    }

    /// As flags, for our commands and Open vSwitch's.
    pub fn flags(&self) -> Vec<String> {
        let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
        vec![
            flag("private-key", &self.key),
            flag("certificate", &self.certificate),
            flag("ca-cert", &self.authority),
        ]
    }
}

/// A loopback address that nobody else uses.
pub fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(100);
    let process = std::process::id();
    format!("127.{}.{}.{}", NEXT.fetch_add(1, Relaxed) % 128 + 64, process >> 8 & 0xff, process & 0xff)
}

/// A switch that listens with TLS, and where.
fn listening(papers: &Papers) -> (Running, String) {
    let address = address();
    let running = Running::with(2, |config: &mut SwitchConfig| {
        config.listen.push(Listen::parse(&format!("pssl:6653:{address}")).unwrap().into());
        config.tls = papers.files();
    });
    (running, format!("{address}:6653"))
}

/// Runs a command: exit code, and everything that it said.
fn said(mut command: Command) -> (Option<i32>, String) {
    command.stdin(std::process::Stdio::null());
    let output = finish(start(command), Duration::from_secs(60));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

/// `pathlab flow dump` of a switch.
fn dump(switch: &str, papers: Option<&Papers>) -> (Option<i32>, String) {
    let mut command = pathlab(&["flow", "dump", switch]);
    command.args(papers.map(Papers::flags).unwrap_or_default());
    said(command)
}

fn ofctl(papers: &Papers, words: &[&str]) -> (Option<i32>, String) {
    let mut command = support::command("ovs-ofctl");
    command.args(papers.flags()).args(["-O", "OpenFlow13"]).args(words);
    said(command)
}

/// Waits until the switch has said something like this.
fn wait_for_word(running: &Running, what: &str, is_it: impl Fn(&SwitchNotice) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !running.said.lock().unwrap().iter().any(&is_it) {
        assert!(Instant::now() < deadline, "{what}: {:?}", running.said.lock().unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ovs_ofctl_and_our_client_change_a_switch_over_tls() {
    let authority = Authority::new();
    let (running, at) = listening(&authority.papers("switch"));
    let (papers, to) = (authority.papers("client"), format!("ssl:{at}"));
    if installed("ovs-ofctl") {
        let (code, text) = ofctl(&papers, &["add-flow", &to, "priority=7,in_port=1 actions=output:2"]);
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = ofctl(&papers, &["dump-flows", &to]);
        assert!(code == Some(0) && text.contains("priority=7,in_port=1 actions=output:2"), "{text}");
    } else {
        skip("ovs-ofctl over TLS", "ovs-ofctl is not installed (tests/peers.sh installs it)");
    }
    let mut adds = pathlab(&["flow", "add", &to, "priority=8,in_port=2 actions=output:1"]);
    adds.args(papers.flags());
    let (code, text) = said(adds);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = dump(&to, Some(&papers));
    assert!(code == Some(0) && text.contains("priority=8,in_port=2 actions=output:1"), "{text}");
    // Certificates say who belongs here, so the name by which the switch was called is the caller's business.
    wait_for_word(
        &running,
        "a caller over TLS",
        |say| matches!(say, SwitchNotice::Up { who, .. } if who.starts_with("ssl:")),
    );
}

#[test]
fn a_long_answer_comes_whole_over_tls() {
    let authority = Authority::new();
    let (running, at) = listening(&authority.papers("switch"));
    let papers = authority.papers("client");
    let lines: String = (0..20_000)
        .map(|n| format!("priority={},reg0={n},in_port=1 actions=output:2\n", n % 60_000 + 1))
        .collect();
    let lines = lines.replace("reg0=", "metadata=");
    let file = running.socket().with_file_name("rules");
    std::fs::write(&file, lines).unwrap();
    let mut adds = pathlab(&["flow", "add", &format!("ssl:{at}"), "--file", &file.display().to_string()]);
    adds.args(papers.flags()).args(["--timeout", "60"]);
    let (code, text) = said(adds);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = dump(&format!("ssl:{at}"), Some(&papers));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("actions=output:2")).count(), 20_000);
    assert_eq!(running.client(Version::V14).rules().len(), 20_000);
}

#[test]
fn another_authority_is_refused_by_either_end() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (running, at) = listening(&ours.papers("switch"));
    let to = format!("ssl:{at}");
    // The switch does not believe the client.
    let stranger = theirs.papers("client").believing(&ours);
    let (code, text) = dump(&to, Some(&stranger));
    assert!(
        code == Some(2) && text.contains("it refuses our certificate: its CA certificate did not sign ours"),
        "{text}"
    );
    wait_for_word(
        &running,
        "the switch tells of it",
        |say| matches!(say, SwitchNotice::Refused { why, .. } if why.contains("our CA certificate did not sign its certificate")),
    );
    // The client does not believe the switch.
    let (code, text) = dump(&to, Some(&ours.papers("member").believing(&theirs)));
    assert!(code == Some(2) && text.contains("our CA certificate did not sign its certificate"), "{text}");
    let (code, text) = dump(&to, Some(&ours.papers_until("old", 2002)));
    assert!(code == Some(2) && text.contains("it refuses our certificate as expired"), "{text}");
    if installed("ovs-ofctl") {
        let (code, text) = ofctl(&stranger, &["dump-flows", &to]);
        assert_eq!(code, Some(1), "{text}");
    } else {
        skip(
            "ovs-ofctl with a certificate of another authority",
            "ovs-ofctl is not installed (tests/peers.sh installs it)",
        );
    }
    assert_eq!(dump(&to, Some(&ours.papers("right"))).0, Some(0), "who belongs here is still let in");
}

#[test]
fn an_expired_switch_is_not_believed() {
    let authority = Authority::new();
    let (_running, at) = listening(&authority.papers_until("switch", 2003));
    let (code, text) = dump(&format!("ssl:{at}"), Some(&authority.papers("client")));
    assert!(code == Some(2) && text.contains("its certificate has expired"), "{text}");
}

#[test]
fn who_shows_no_certificate_or_speaks_an_old_tls_is_refused() {
    if !installed("openssl") {
        return skip("TLS without a certificate", "openssl is not installed");
    }
    let authority = Authority::new();
    let papers = authority.papers("switch");
    let old: &[&str] = &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"];
    // Each calls a switch of its own: the refusals of one second are one line.
    for (how, words) in [(&[][..], "it shows no certificate"), (old, "it speaks neither TLS 1.2 nor TLS 1.3")]
    {
        let (running, at) = listening(&papers);
        let mut command = support::command("openssl");
        command.args(["s_client", "-quiet", "-connect", &at, "-CAfile"]).arg(&papers.authority).args(how);
        let (_, text) = said(command);
        wait_for_word(
            &running,
            words,
            |say| matches!(say, SwitchNotice::Refused { why, .. } if why.contains(words)),
        );
        let is_up = |say: &SwitchNotice| matches!(say, SwitchNotice::Up { .. });
        assert!(!running.said.lock().unwrap().iter().any(is_up), "{text}");
    }
}

#[test]
fn plain_text_and_tls_do_not_meet() {
    let authority = Authority::new();
    let papers = authority.papers("switch");
    let address = address();
    let running = Running::with(1, |config| {
        for place in [format!("pssl:6653:{address}"), format!("ptcp:6654:{address}")] {
            config.listen.push(Listen::parse(&place).unwrap().into());
        }
        config.tls = papers.files();
    });
    let (code, text) = dump(&format!("tcp:{address}:6653"), None);
    assert!(code == Some(2) && text.contains("the other end speaks TLS"), "{text}");
    wait_for_word(
        &running,
        "plain text at the port of TLS",
        |say| matches!(say, SwitchNotice::Refused { why, .. } if why.contains("is not TLS")),
    );
    let (code, text) = dump(&format!("ssl:{address}:6654"), Some(&papers));
    assert!(code == Some(2) && text.contains("what it sends is not TLS"), "{text}");
}

#[test]
fn files_that_are_missing_or_wrong_are_named() {
    let authority = Authority::new();
    let (papers, other) = (authority.papers("one"), authority.papers("other"));
    let to = "ssl:127.0.0.1:1";
    let (code, text) = dump(to, None);
    assert!(code == Some(2) && text.contains("TLS needs a private key"), "{text}");
    let gone = Papers { certificate: "/nowhere/cert.pem".into(), ..papers.clone() };
    let (code, text) = dump(to, Some(&gone));
    assert!(
        code == Some(2) && text.contains("/nowhere/cert.pem") && text.contains("cannot read it"),
        "{text}"
    );
    let crossed = Papers { key: other.key.clone(), ..papers.clone() };
    let (code, text) = dump(to, Some(&crossed));
    assert!(code == Some(2) && text.contains("not the private key of the certificate"), "{text}");
    let swapped = Papers { key: papers.certificate.clone(), ..papers.clone() };
    let (code, text) = dump(to, Some(&swapped));
    assert!(code == Some(2) && text.contains("there is no private key in it"), "{text}");
    let mut command = pathlab(&["switch", "--listen", "pssl:0:127.0.0.1", "--duration", "1"]);
    command.args(&papers.flags()[..2]);
    let (code, text) = said(command);
    assert!(code == Some(2) && text.contains("TLS needs the certificate of an authority"), "{text}");
}

#[test]
fn nonsense_and_half_a_handshake_leave_the_switch_alone() {
    let authority = Authority::new();
    let (running, at) = listening(&authority.papers("switch"));
    let mut witness = running.client(Version::V14);
    witness.must([add("priority=1,in_port=1 actions=output:2")]);
    let mut dice = 0x2545_f491_4f6c_dd1du64;
    for round in 0..200 {
        let mut bytes: Vec<u8> = (0..dice % 2000)
            .map(|_| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (dice >> 33) as u8
            })
            .collect();
        // Half of it looks like a record of TLS, with a length that is right.
        if round % 2 == 0 && bytes.len() > 9 {
            let length = bytes.len() as u16 - 5;
            bytes[..3].copy_from_slice(&[0x16, 3, 1]);
            bytes[3..5].copy_from_slice(&length.to_be_bytes());
            bytes[5] = 1;
        }
        dice = dice.wrapping_add(round);
        // The switch may hang up in the middle.
        let _ = TcpStream::connect(&at).unwrap().write_all(&bytes);
    }
    assert_eq!(dump(&format!("ssl:{at}"), Some(&authority.papers("client"))).0, Some(0));
    // A client hello that promises 512 bytes and brings 7: its sender then waits.
    let mut stalls: Vec<TcpStream> = [&[][..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 9]]
        .into_iter()
        .map(|bytes| {
            let mut stream = TcpStream::connect(&at).unwrap();
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    for stream in &mut stalls {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = vec![];
        // An end or a reset; what must not be is that nothing comes.
        if let Err(e) = stream.read_to_end(&mut rest) {
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "the stalled handshake is not ended");
        }
    }
    wait_for_word(
        &running,
        "stalls are told of",
        |say| matches!(say, SwitchNotice::Refused { why, .. } if why.contains("no hello within 5 s (TLS handshake)")),
    );
    assert_eq!(witness.rules().len(), 1);
}

#[test]
fn a_switch_calls_controllers_over_tls() {
    let authority = Authority::new();
    let (address, papers) = (address(), authority.papers("controller"));
    let calling = || {
        Running::with(2, |config| {
            config.controllers.push(ControllerConfig::parse(&format!("ssl:{address}:6653")).unwrap());
            config.tls = authority.papers("switch").files();
        })
    };
    let mut ours =
        pathlab(&["controller", "iperf", "--until", "1", "--listen", &format!("pssl:6653:{address}")]);
    ours.args(papers.flags());
    let running = calling();
    let (code, text) = said(ours);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(running.client(Version::V14).rules().len(), 2);
    drop(running);
    let program = project("target/peers/testcontroller/usr/bin/ovs-testcontroller");
    if !program.exists() {
        return skip(
            "ovs-testcontroller over TLS",
            "it is not in target/peers (tests/peers.sh puts it there)",
        );
    }
    let mut theirs = support::command(&program.display().to_string());
    theirs.args(papers.flags()).arg(format!("pssl:6653:{address}"));
    let folder = tempfile::tempdir().unwrap();
    theirs.arg(format!("--unixctl={}", folder.path().join("ctl").display()));
    theirs.env("OVS_RUNDIR", folder.path());
    let theirs = Kept::new(theirs.spawn().unwrap());
    let running = calling();
    let deadline = Instant::now() + PATIENCE;
    let mut client = Client::connect(&running.socket(), Version::V13);
    // Its rule for frames that no other knows.
    let mut rules = 0;
    while rules == 0 && Instant::now() < deadline {
        rules = client.rules().len();
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = running.said.lock().unwrap().clone();
    drop(theirs);
    assert!(rules > 0, "{said:?}");
    wait_for_word(
        &running,
        "the end",
        |say| matches!(say, SwitchNotice::Down { who, .. } if who.starts_with("ssl:")),
    );
}

#[test]
fn a_controller_that_is_not_ours_is_told_of() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let address = address();
    let mut stranger = pathlab(&["controller", "hub", "--listen", &format!("pssl:6653:{address}")]);
    stranger.args(theirs.papers("controller").believing(&ours).flags());
    let stranger = Kept::new(stranger.stderr(std::process::Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(format!("{address}:6653")).is_err() {
        assert!(Instant::now() < deadline, "the controller does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let running = Running::with(1, |config| {
        config.controllers.push(ControllerConfig::parse(&format!("ssl:{address}:6653")).unwrap());
        config.tls = ours.papers("switch").files();
    });
    wait_for_word(&running, "who is refused is told of", |say| {
        let text = "our CA certificate did not sign its certificate";
        matches!(say, SwitchNotice::Unreachable { why, .. } if why.contains(text))
    });
    // Told is only the first reason; a second call fares no better.
    std::thread::sleep(Duration::from_millis(1500));
    let is_up = |say: &SwitchNotice| matches!(say, SwitchNotice::Up { .. });
    let got_in = running.said.lock().unwrap().iter().any(is_up);
    drop(stranger);
    assert!(!got_in && running.client(Version::V14).rules().is_empty());
}

/// A controller that does not run yet, then runs and is a stranger: both are said, each once.
#[test]
fn another_reason_why_a_controller_cannot_be_reached_is_told_of() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let address = address();
    let running = Running::with(1, |config| {
        config.controllers.push(ControllerConfig::parse(&format!("ssl:{address}:6653")).unwrap());
        config.tls = ours.papers("switch").files();
    });
    let is_for = |text: &'static str| move |say: &SwitchNotice| matches!(say, SwitchNotice::Unreachable { why, .. } if why.contains(text));
    wait_for_word(&running, "nobody listens", is_for("Connection refused"));
    let mut stranger = pathlab(&["controller", "hub", "--listen", &format!("pssl:6653:{address}")]);
    stranger.args(theirs.papers("controller").believing(&ours).flags());
    let stranger = Kept::new(stranger.stderr(std::process::Stdio::null()).spawn().unwrap());
    wait_for_word(&running, "a stranger listens", is_for("our CA certificate did not sign its certificate"));
    let refused = is_for("Connection refused");
    let times = running.said.lock().unwrap().iter().filter(|say| refused(say)).count();
    drop(stranger);
    assert_eq!(times, 1);
}

/// openssl signs a request without extensions as version 1 (Debian 12: OpenSSL 3.0), and its own tools take that.
#[test]
fn a_certificate_of_x509_version_1_is_named() {
    let what = "an X.509 certificate of version 1";
    if !installed("openssl") {
        return skip(what, "openssl is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let openssl = |line: &str| {
        let mut command = Command::new("openssl");
        command.args(line.split(' ')).current_dir(folder.path());
        let (code, words) = said(command);
        assert_eq!(code, Some(0), "openssl {line}: {words}");
        words
    };
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {new} -keyout ca-key.pem -out ca.pem -subj /CN=ca -days 30"));
    std::fs::write(folder.path().join("extensions"), "basicConstraints=CA:FALSE\n").unwrap();
    for (name, more) in [("one", ""), ("three", " -extfile extensions")] {
        openssl(&format!("req {new} -keyout {name}-key.pem -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out {name}.pem{more}"
        ));
    }
    if !openssl("x509 -in one.pem -noout -text").contains("Version: 1 ") {
        return skip(what, "this openssl makes none");
    }
    let address = address();
    let mut server = Command::new("openssl");
    server.args(["s_server", "-quiet", "-accept", &format!("{address}:6653")]);
    server.args(["-cert", "one.pem", "-key", "one-key.pem"]).current_dir(folder.path());
    let _server = Kept::new(server.stdin(std::process::Stdio::piped()).spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(format!("{address}:6653")).is_err() {
        assert!(Instant::now() < deadline, "openssl does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let file = |name: &str| folder.path().join(name);
    let papers =
        Papers { key: file("three-key.pem"), certificate: file("three.pem"), authority: file("ca.pem") };
    let mut command = pathlab(&["flow", "dump", &format!("ssl:{address}:6653")]);
    command.args(papers.flags());
    let (code, words) = said(command);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("X.509 version 1") && words.contains("openssl x509"), "{words}");
}
