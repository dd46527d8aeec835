//! `dpctl`: questions and changes, in the words of the reference implementation.
//!
//! The switch may stand first (`dpctl unix:/s show`), second (`dpctl show unix:/s`, as ovs-ofctl) or last
//! (`dpctl add-flow FLOW unix:/s`, as Mininet writes it): it is recognised by its form.

use crate::cli;
use crate::cmd::tls::TlsArgs;
use crate::output::Output;
use clap::Parser;
use flow::openflow::bytes::{Bytes, Hex, Version};
use flow::openflow::message::Body;
use flow::openflow::oxm::ExperimenterKind;
use record::{Problem, Result};
use std::time::Duration;
use switch::client::Client;
use switch::config::Remote;
use switch::relay::{STATUS_EXPERIMENTER, STATUS_REPLY, STATUS_REQUEST};

/// How long to wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks or changes an OpenFlow switch, with the arguments of the reference implementation.
#[derive(Parser)]
#[command(name = "dpctl", version)]
#[command(
    after_help = "Commands: status [NAME] · show · dump-flows [MATCH] · dump-ports · dump-tables · dump-groups · \
                        dump-meters · add-flow FLOW · add-flows FILE · mod-flows FLOW · del-flows [MATCH] · add-group GROUP · \
                        del-groups [NUMBER] · add-meter METER · del-meters [NUMBER]. Rules are written as ovs-ofctl writes them."
)]
pub struct Dpctl {
    /// A command, its arguments, and the switch (unix:PATH, tcp:IP[:PORT] or ssl:IP[:PORT]) before, between or after them.
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Carries out one command.
pub fn run(args: &Dpctl, output: &Output) -> Result<()> {
    let (switch, command, rest) = order(&args.words)?;
    if command == "status" {
        let wanted = match &rest[..] {
            [] => "",
            [wanted] => wanted,
            [_, more, ..] => {
                return Err(Problem::input(format!("unexpected argument '{more}'"))
                    .help("dpctl status NAME prints what begins with NAME"));
            }
        };
        return output.text(&status(&switch, &args.tls, wanted)?).map(drop);
    }
    let mut words = translate(&switch, &command, &rest)?;
    words.extend(super::words::of_tls(&args.tls));
    cli::carry_out(words, output)
}

/// Finds the switch among the words; returns it, the command, and the other words.
fn order(words: &[String]) -> Result<(String, String, Vec<String>)> {
    let is_switch =
        |word: &String| ["unix:", "tcp:", "ssl:", "tls:"].iter().any(|kind| word.starts_with(kind));
    let mut rest = words.to_vec();
    let place = rest.iter().position(is_switch).ok_or_else(|| {
        Problem::input("no switch given").help("unix:PATH or tcp:IP[:PORT], as dpctl unix:/tmp/s1 show")
    })?;
    let switch = rest.remove(place);
    if rest.is_empty() {
        return Err(Problem::input("no command given").help("dpctl --help lists them"));
    }
    let command = rest.remove(0);
    Ok((switch, command, rest))
}

/// Commands by their names, what `pathlab flow` calls them, and the option that their words belong to, if one does; the
/// last word stands for that of the option when none is given.
type Row = (&'static [&'static str], &'static str, Option<&'static str>, Option<&'static str>);
const COMMANDS: &[Row] = &[
    (&["show", "features", "dump-desc", "stats-desc"], "show", None, None),
    (&["dump-ports", "dump-ports-desc", "stats-port", "port-desc"], "ports", None, None),
    (&["dump-tables", "stats-table"], "tables", None, None),
    (&["dump-flows", "stats-flow"], "dump", None, None),
    (&["dump-groups", "dump-group-stats", "stats-group", "group-desc"], "groups", None, None),
    (&["dump-meters", "meter-stats", "stats-meter", "meter-config"], "meters", None, None),
    (&["add-flow"], "add", None, None),
    (&["mod-flows"], "mod", None, None),
    (&["del-flows"], "del", None, None),
    (&["add-flows"], "add", Some("--file"), None),
    (&["add-group"], "groups", Some("--add"), None),
    (&["del-groups"], "groups", Some("--delete"), Some("all")),
    (&["add-meter"], "meters", Some("--add"), None),
    (&["del-meters"], "meters", Some("--delete"), Some("all")),
];

/// The words of `pathlab` for one command.
fn translate(switch: &str, command: &str, rest: &[String]) -> Result<Vec<String>> {
    let row = COMMANDS.iter().find(|(names, ..)| names.contains(&command));
    let Some((_, name, option, otherwise)) = row else {
        return Err(Problem::input(format!("dpctl has no command '{command}' here"))
            .help("dpctl --help lists them; pathlab flow and ovs-ofctl know more"));
    };
    let given = rest.iter().map(String::as_str).chain(otherwise.filter(|_| rest.is_empty()));
    let given: Vec<String> = match option {
        Some(option) => given.map(|word| format!("{option}={word}")).collect(),
        None => given.map(str::to_owned).collect(),
    };
    if option.is_some() && given.is_empty() {
        return Err(Problem::input(format!("'{command}' needs an argument")).help("dpctl --help lists them"));
    }
    Ok(["flow", name, switch].map(str::to_owned).into_iter().chain(given).collect())
}

/// Asks the secure channel between a switch and its controllers what is connected.
fn status(switch: &str, tls: &TlsArgs, wanted: &str) -> Result<String> {
    let to = Remote::parse(switch)?;
    let credentials = tls.files().load_if(to.is_tls())?;
    let mut client = Client::call(&to, credentials.as_ref(), &Version::ALL, LIMIT)?;
    let question = ExperimenterKind {
        experimenter: Hex(STATUS_EXPERIMENTER),
        exp_type: STATUS_REQUEST,
        data: Bytes(wanted.as_bytes().to_vec()),
    };
    match client.ask(Body::Experimenter(question)) {
        Ok(Body::Experimenter(answer)) if answer.exp_type == STATUS_REPLY => {
            Ok(String::from_utf8_lossy(&answer.data.0).into_owned())
        }
        Ok(_) => Err(Problem::input("unexpected answer")),
        Err(problem) => Err(problem.help("the status is reported where ofprotocol listens (its --listen)")),
    }
    .map_err(|problem| problem.at(switch.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    fn words(line: &str) -> Result<String> {
        let all: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (switch, command, rest) = order(&all)?;
        let words = translate(&switch, &command, &rest)?;
        let whole = std::iter::once("pathlab".to_owned()).chain(words.clone());
        Cli::try_parse_from(whole).unwrap_or_else(|error| panic!("{line}: {error}"));
        Ok(words.join(" "))
    }

    #[test]
    fn the_switch_may_stand_anywhere() {
        for line in
            ["dump-flows unix:/s in_port=1", "unix:/s dump-flows in_port=1", "dump-flows in_port=1 unix:/s"]
        {
            assert_eq!(words(line).unwrap(), "flow dump unix:/s in_port=1");
        }
    }

    #[test]
    fn every_command_is_one_of_pathlab() {
        for (line, expected) in [
            ("show tcp:1.2.3.4", "flow show tcp:1.2.3.4"),
            ("tcp:1.2.3.4 stats-flow", "flow dump tcp:1.2.3.4"),
            ("add-flow in_port=1,actions=output:2 unix:/s", "flow add unix:/s in_port=1,actions=output:2"),
            ("del-flows unix:/s", "flow del unix:/s"),
            ("add-flows unix:/s file", "flow add unix:/s --file=file"),
            ("del-groups unix:/s", "flow groups unix:/s --delete=all"),
            ("add-meter unix:/s meter=1", "flow meters unix:/s --add=meter=1"),
            ("dump-ports unix:/s", "flow ports unix:/s"),
            ("dump-tables unix:/s", "flow tables unix:/s"),
        ] {
            assert_eq!(words(line).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            ("show", "no switch"),
            ("unix:/s", "no command"),
            ("queue-mod unix:/s", "'queue-mod'"),
            ("add-group unix:/s", "needs an argument"),
        ] {
            let problem = words(line).unwrap_err().to_string();
            assert!(problem.contains(expected), "{line}: {problem}");
        }
    }
}
