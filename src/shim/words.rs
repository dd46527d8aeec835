//! `ofdatapath` and `controller`: their arguments, rewritten into those of `pathlab switch` and `pathlab controller`.

use crate::cmd::tls::TlsArgs;
use clap::Parser;
use record::{Problem, Result};

/// Options of the daemons of the reference implementation that have no effect here.
#[derive(clap::Args)]
pub struct Daemon {
    /// Refused: start the program with '&' instead.
    #[arg(short = 'D', long)]
    detach: bool,
    /// Refused, as --detach.
    #[arg(short = 'P', long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pidfile: Option<Option<String>>,
    /// Accepted; everything is reported anyway.
    #[arg(short = 'v', long, value_name = "WHAT", num_args = 0..=1, require_equals = true)]
    verbose: Vec<String>,
    /// Refused: redirect standard error instead.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    log_file: Option<Option<String>>,
}

impl Daemon {
    /// Refuses what is not supported.
    pub fn check(&self) -> Result<()> {
        let refused = [
            (self.detach, "--detach", "start it with '&'"),
            (self.pidfile.is_some(), "--pidfile", "start it with '&'; $! is its process id"),
            (self.log_file.is_some(), "--log-file", "redirect standard error"),
        ];
        let refused = refused.into_iter().find(|(is_said, ..)| *is_said);
        let refuse =
            |(_, option, instead)| Problem::input(format!("{option} is not supported")).help(instead);
        refused.map(refuse).map_or(Ok(()), Err)
    }
}

/// An OpenFlow datapath with the arguments of the reference implementation; it is pathlab switch.
#[derive(Parser)]
#[command(name = "ofdatapath", version)]
pub struct Datapath {
    /// Interfaces that become the ports 1, 2, …; int:, ring:, xdp: and tap: may stand before a name.
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',')]
    interfaces: Vec<String>,
    /// The port LOCAL: an interface, or tap:NAME [default: none].
    #[arg(short = 'L', long, value_name = "NAME")]
    local_port: Option<String>,
    /// Accepted: this is the default.
    #[arg(long, conflicts_with = "local_port")]
    no_local_port: bool,
    /// The datapath identifier: 12 hexadecimal digits.
    #[arg(short, long, value_name = "ID", default_value = "000000000001")]
    datapath_id: String,
    /// Accepted: queues are those that tc made; no others are created.
    #[arg(long)]
    no_slicing: bool,
    /// Accepted: several connections to one controller need no option.
    #[arg(short, long)]
    multiconn: bool,
    /// The name of the switch.
    #[arg(long = "dp_desc", visible_alias = "dp-desc", value_name = "NAME")]
    dp_desc: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    daemon: Daemon,
    /// Where to listen for the secure channel: punix:PATH, ptcp:[PORT][:IP] or pssl:[PORT][:IP].
    #[arg(value_name = "LISTEN", required = true)]
    listen: Vec<String>,
}

impl Datapath {
    /// The arguments of `pathlab`.
    pub fn words(&self) -> Result<Vec<String>> {
        self.daemon.check()?;
        let mut words = vec!["switch".to_owned(), format!("--dpid={}", hexadecimal(&self.datapath_id)?)];
        // Mininet may pass empty values: a switch without links gets `-i ''`.
        for interface in self.interfaces.iter().filter(|name| !name.is_empty()) {
            words.push(format!("--port={}", port(interface)));
        }
        words.extend(self.local_port.iter().map(|name| format!("--local={}", port(name))));
        words.extend(self.dp_desc.iter().map(|name| format!("--name={name}")));
        words.extend(self.listen.iter().map(|place| format!("--listen={place}")));
        words.extend(of_tls(&self.tls));
        Ok(words)
    }
}

/// The flags of TLS, which are the same here and there.
pub fn of_tls(tls: &TlsArgs) -> Vec<String> {
    let files = tls.files();
    let named =
        [("private-key", files.private_key), ("certificate", files.certificate), ("ca-cert", files.ca_cert)];
    let words = named.into_iter().filter_map(|(flag, file)| Some(format!("--{flag}={}", file?.display())));
    words.collect()
}

/// An interface by its name alone is opened as `int:`.
fn port(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("int:{name}") }
}

/// As the reference implementation: hexadecimal digits without `0x`, whatever their number.
fn hexadecimal(text: &str) -> Result<String> {
    match u64::from_str_radix(text, 16) {
        Ok(number) if number > 0 => Ok(format!("{number:#x}")),
        _ => Err(Problem::input(format!("'{text}' is not a datapath identifier"))
            .at("--datapath-id")
            .help("12 hexadecimal digits that are not all 0, as 000000000001")),
    }
}

/// An OpenFlow controller with the arguments of the reference implementation; it is pathlab controller.
#[derive(Parser)]
#[command(name = "controller", version)]
pub struct Controller {
    /// Flood every frame instead of learning addresses.
    #[arg(short = 'H', long)]
    hub: bool,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    daemon: Daemon,
    /// Where to listen for switches (ptcp:[PORT][:IP], punix:PATH), or which to connect to (tcp:IP[:PORT], unix:PATH).
    #[arg(value_name = "METHOD", required = true)]
    methods: Vec<String>,
}

impl Controller {
    /// The arguments of `pathlab`.
    pub fn words(&self) -> Result<Vec<String>> {
        self.daemon.check()?;
        let scenario = if self.hub { "hub" } else { "learning" };
        let mut words = vec!["controller".to_owned(), scenario.to_owned()];
        for method in &self.methods {
            let passive = method.starts_with('p');
            words.push(format!("--{}={method}", if passive { "listen" } else { "switch" }));
        }
        words.extend(of_tls(&self.tls));
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_datapath(line: &str) -> Vec<String> {
        Datapath::try_parse_from(line.split(' ')).unwrap().words().unwrap()
    }

    #[test]
    fn what_mininet_says_becomes_a_switch() {
        let words = of_datapath("ofdatapath -i s1-eth1,s1-eth2 punix:/tmp/s1 -d 00000000000a --no-slicing");
        let expected =
            ["switch", "--dpid=0xa", "--port=int:s1-eth1", "--port=int:s1-eth2", "--listen=punix:/tmp/s1"];
        assert_eq!(words, expected);
        let words = of_datapath("ofdatapath -v -i ring:a -i b -L tap:t --dp_desc x punix:/s");
        let expected = [
            "switch",
            "--dpid=0x1",
            "--port=ring:a",
            "--port=int:b",
            "--local=tap:t",
            "--name=x",
            "--listen=punix:/s",
        ];
        assert_eq!(words, expected);
        assert_eq!(of_datapath("ofdatapath -i  punix:/s").len(), 3, "a switch without links");
    }

    #[test]
    fn what_is_not_done_is_said() {
        for (line, expected) in [
            ("-D punix:/s", "--detach"),
            ("-P punix:/s", "--pidfile"),
            ("-d 0 punix:/s", "not a datapath identifier"),
        ] {
            let words = format!("ofdatapath {line}");
            let problem =
                Datapath::try_parse_from(words.split(' ')).unwrap().words().unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        let refused = Datapath::try_parse_from(["ofdatapath", "--slice", "punix:/s"]).err().unwrap();
        assert!(refused.to_string().contains("unexpected argument '--slice'"), "{refused}");
    }

    #[test]
    fn a_controller_learns_or_floods_and_waits_or_calls() {
        let words = |line: &str| Controller::try_parse_from(line.split(' ')).unwrap().words().unwrap();
        assert_eq!(words("controller -v ptcp:6653"), ["controller", "learning", "--listen=ptcp:6653"]);
        assert_eq!(words("controller -H unix:/s"), ["controller", "hub", "--switch=unix:/s"]);
    }
}
