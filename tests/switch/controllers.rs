//! Controllers that other people wrote: ovs-testcontroller and Faucet.

use crate::site::{Site, needs_root, project, within};
use crate::support;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Where `tests/peers.sh` puts Open vSwitch's controller: unpacked, not installed, because the package starts a service.
const TESTCONTROLLER: &str = "target/peers/testcontroller/usr/bin/ovs-testcontroller";

#[test]
fn ovs_testcontroller_teaches_the_switch_where_four_hosts_are() {
    let what = "four hosts under ovs-testcontroller";
    if needs_root(what) {
        return;
    }
    let program = project(TESTCONTROLLER);
    if !program.exists() {
        return support::skip(
            what,
            "ovs-testcontroller is not in target/peers (tests/peers.sh puts it there)",
        );
    }
    let mut site = Site::build(4);
    let controller = site.folder.path().join("c");
    let mut command = site.command(0, program.to_str().unwrap());
    command.arg(format!("punix:{}", controller.display())).arg("--max-idle=60");
    command.arg(format!("--unixctl={}", site.folder.path().join("ctl").display()));
    command.env("OVS_RUNDIR", site.folder.path());
    site.start(command);
    site.wait_for("the controller's socket", |_| controller.exists());
    let to = format!("unix:{}", controller.display());
    site.usual_switch(&["--controller", &to]);
    for from in 1..=4 {
        for to in (1..=4).filter(|to| *to != from) {
            site.reaches(from, &format!("10.0.0.{to}"));
        }
    }
    // The controller has put rules there: the ways it learned, beside the miss.
    let (ok, rules) =
        site.try_run(0, &format!("ovs-ofctl -O OpenFlow13 dump-flows unix:{}", site.socket().display()));
    assert!(ok, "{rules}");
    assert!(rules.lines().filter(|line| line.contains("dl_dst=02:00:00:00:00:")).count() >= 4, "{rules}");
    assert!(rules.contains("CONTROLLER"), "{rules}");
}

/// Two VLANs with two hosts each, routed for IPv4 and IPv6, without telnet and without ports 80 to 95 (a mask) from host 1; hosts are forgotten after a few
/// seconds without an answer (Faucet wants more than twice the time after which it asks again).
const FAUCET: &str = r#"
vlans:
  one: {vid: 100, faucet_vips: ["10.0.1.254/24", "fd00:1::fe/64"], faucet_mac: "0e:00:00:00:01:00"}
  two: {vid: 200, faucet_vips: ["10.0.2.254/24", "fd00:2::fe/64"], faucet_mac: "0e:00:00:00:02:00"}
routers:
  between: {vlans: [one, two]}
acls:
  no_telnet:
    - rule: {dl_type: 0x800, nw_proto: 6, tcp_dst: 23, actions: {allow: 0}}
    - rule: {dl_type: 0x800, nw_proto: 6, tcp_dst: "0x50/0xfff0", actions: {allow: 0}}
    - rule: {actions: {allow: 1}}
dps:
  s1:
    dp_id: 1
    hardware: "Open vSwitch"
    timeout: 15
    arp_neighbor_timeout: 2
    nd_neighbor_timeout: 2
    max_resolve_backoff_time: 2
    interfaces:
      1: {native_vlan: one, acls_in: [no_telnet]}
      2: {native_vlan: one}
      3: {native_vlan: two}
      4: {native_vlan: two}
"#;

/// Gives the hosts of the plan above their addresses and ways.
fn address(site: &Site, host: usize) {
    let net = host.div_ceil(2);
    site.ip(host, &format!("address add 10.0.{net}.{host}/24 dev eth0"));
    site.ip(host, &format!("route add default via 10.0.{net}.254"));
    site.ip(host, &format!("address add fd00:{net}::{host}/64 dev eth0 nodad"));
    site.ip(host, &format!("route add default via fd00:{net}::fe"));
}

/// Starts Faucet and a switch that calls it, and waits for its rules.
fn under_faucet(folder: &std::path::Path) -> Site {
    let mut site = Site::bare(4);
    for host in 1..=4 {
        address(&site, host);
    }
    let config = site.file("faucet.yaml", FAUCET);
    let mut command = site.command(0, folder.join("faucet").to_str().unwrap());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", folder.display()));
    command
        .env("FAUCET_CONFIG", config)
        .env("FAUCET_PROMETHEUS_ADDR", "127.0.0.1")
        .env("PYTHONWARNINGS", "ignore");
    for (name, file) in [("FAUCET_LOG", "faucet.log"), ("FAUCET_EXCEPTION_LOG", "exceptions.log")] {
        command.env(name, site.folder.path().join(file));
    }
    command.args(["--ryu-ofp-tcp-listen-port", "6653"]);
    site.start(command);
    site.usual_switch(&["--controller", "tcp:127.0.0.1:6653"]);
    site.wait_for("Faucet's rules", |site| rules(site).contains("table=4"));
    site
}

fn rules(site: &Site) -> String {
    let socket = site.socket();
    let (ok, rules) =
        site.try_run(0, &format!("ovs-ofctl -O OpenFlow13 dump-flows unix:{}", socket.display()));
    assert!(ok, "{rules}");
    rules
}

/// Whether host 1 can open a connection to a port of host 2.
fn connects(site: &Site, port: u16) -> bool {
    let listener = within(&site.netns(2), || TcpListener::bind(("10.0.1.2", port)).unwrap());
    let to = listener.local_addr().unwrap();
    within(&site.netns(1), || TcpStream::connect_timeout(&to, Duration::from_secs(2)).is_ok())
}

/// The cable of host 4 is pulled and put back: Faucet hears it, forgets the host, and finds it again.
fn goes_down_and_up(site: &Site) {
    let fourth = "dl_dst=02:00:00:00:00:04";
    site.reaches(3, "10.0.2.4");
    assert!(rules(site).contains(fourth));
    let (downs, ups) = (said(site, " down"), said(site, " up"));
    site.ip(4, "link set eth0 down");
    site.wait_for("Faucet hears that the port is down", |site| said(site, " down") > downs);
    site.wait_for("host 4 is forgotten", |site| !rules(site).contains(fourth));
    assert!(!site.pings(3, "10.0.2.4"));
    site.ip(4, "link set eth0 up");
    // Addresses of IPv4 stay, the ways go with the link.
    site.ip(4, "route replace default via 10.0.2.254");
    site.wait_for("Faucet hears that the port is up", |site| said(site, " up") > ups);
    site.reaches(3, "10.0.2.4");
    site.reaches(4, "10.0.1.2");
    assert!(rules(site).contains(fourth));
}

/// Somebody closes host 4's port: Faucet, which looks at LINK_DOWN alone, hears it and forgets the host, as if its cable had been pulled.
#[test]
fn faucet_hears_of_a_port_that_is_closed() {
    let Some(folder) = faucet("a port that is closed under Faucet") else { return };
    let site = under_faucet(&folder);
    let fourth = "dl_dst=02:00:00:00:00:04";
    let mod_port = |word: &str| {
        let socket = site.socket();
        let (ok, text) =
            site.try_run(0, &format!("ovs-ofctl -O OpenFlow13 mod-port unix:{} 4 {word}", socket.display()));
        assert!(ok, "{text}");
    };
    site.reaches(4, "10.0.2.3");
    site.wait_for("host 4 is learned", |site| rules(site).contains(fourth));
    let (downs, ups) = (said(&site, " down"), said(&site, " up"));
    mod_port("down");
    site.wait_for("Faucet hears that the port is down", |site| said(site, " down") > downs);
    site.wait_for("host 4 is forgotten", |site| !rules(site).contains(fourth));
    mod_port("up");
    site.wait_for("Faucet hears that the port is up", |site| said(site, " up") > ups);
    site.reaches(4, "10.0.2.3");
}

/// How often Faucet said something of port 4.
fn said(site: &Site, what: &str) -> usize {
    let log = std::fs::read_to_string(site.folder.path().join("faucet.log")).unwrap_or_default();
    log.lines().filter(|line| line.contains("Port 4 (") && line.ends_with(what)).count()
}

/// Faucet, if it is here; says why a test is skipped otherwise.
fn faucet(what: &str) -> Option<std::path::PathBuf> {
    if needs_root(what) {
        return None;
    }
    let folder = project("target/peers/faucet/bin");
    if folder.join("faucet").exists() {
        return Some(folder);
    }
    support::skip(what, "faucet 1.10.12 is not in target/peers/faucet (tests/peers.sh puts it there)");
    None
}

/// Faucet asks for 0 bytes of frames that nobody asked for (`miss_send_len`), and answers for its router with what it got.
#[test]
fn a_traceroute_finds_faucets_router() {
    let Some(folder) = faucet("a traceroute through Faucet's router") else { return };
    let site = under_faucet(&folder);
    site.reaches(1, "10.0.2.3");
    let first_hop = |site: &Site| site.try_run(1, "ping -n -c 1 -W 1 -t 1 10.0.2.3").1;
    site.wait_for("the router says that the TTL is over", |site| {
        let said = first_hop(site);
        said.contains("From 10.0.1.254") && said.contains("Time to live exceeded")
    });
    assert!(site.try_run(1, "ping -n -c 1 -W 1 -t 2 10.0.2.3").0, "the second hop is the host");
}

#[test]
fn faucet_makes_vlans_an_acl_and_routes_and_forgets_hosts() {
    let Some(folder) = faucet("VLANs, ACL and routes under Faucet") else { return };
    let site = under_faucet(&folder);
    // Within a VLAN, to the router, and between the VLANs by both protocols.
    for (from, to) in [
        (1, "10.0.1.2"),
        (3, "10.0.2.4"),
        (1, "10.0.1.254"),
        (1, "10.0.2.3"),
        (4, "10.0.1.2"),
        (1, "fd00:1::2"),
        (2, "fd00:1::fe"),
        (2, "fd00:2::3"),
    ] {
        site.reaches(from, to);
    }
    // The access list.
    site.wait_for("a connection to port 24", |site| connects(site, 24));
    assert!(!connects(&site, 23));
    // Its rule with a mask: the first and the last port of the range, and those beside it.
    assert!(rules(&site).contains("tp_dst=0x50/0xfff0"), "{}", rules(&site));
    for (port, passes) in [(79, true), (80, false), (95, false), (96, true)] {
        assert_eq!(connects(&site, port), passes, "port {port}");
    }
    goes_down_and_up(&site);
    // A host that is silent is forgotten by the timeouts of its rules.
    let second = "dl_dst=02:00:00:00:00:02";
    assert!(rules(&site).contains(second));
    site.ip(2, "address flush dev eth0");
    site.wait_for("host 2 is forgotten", |site| !rules(site).contains(second));
    let exceptions = std::fs::read_to_string(site.folder.path().join("exceptions.log")).unwrap_or_default();
    assert_eq!(exceptions, "", "Faucet is content");
}
