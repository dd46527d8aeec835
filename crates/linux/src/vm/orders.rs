//! What a machine is to do, as a file of its first file system: lines of bytes, each a word and what belongs to it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::netlink::{Prefix, StaticRoute};

/// What a machine is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// Modules that it needs, in this order.
    pub modules: Vec<PathBuf>,
    /// Modules that it does without where the kernel refuses them, in this order, after the others.
    pub optional: Vec<PathBuf>,
    /// How many pairs of network cards to wait for.
    pub cables: u8,
    /// Of each card with a wire that leads out: its hardware address, its name, and the addresses that it is to have.
    pub wires: Vec<(String, String, Vec<Prefix>)>,
    /// Kernel settings that it is to have, before its cards are on: names and values.
    pub settings: Vec<(String, String)>,
    /// Routes that it is to have.
    pub routes: Vec<StaticRoute>,
    /// The node of a topology that it is to be, and the topology's text; its wires are the ends of the node's links.
    pub node: Option<(String, String)>,
    /// The folder that is shared with the host, where the command is carried out.
    pub folder: PathBuf,
    /// Variables of the command's environment.
    pub environment: Vec<(String, String)>,
    /// The words of the command, without the program's name.
    pub words: Vec<String>,
}

impl Orders {
    /// As bytes: entries that end with 0.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![];
        let mut entry = |word: &str, value: &[u8]| {
            bytes.extend(word.bytes());
            bytes.push(b' ');
            bytes.extend(value);
            bytes.push(0);
        };
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        self.modules.iter().for_each(|module| entry("module", &path(module)));
        self.optional.iter().for_each(|module| entry("optional", &path(module)));
        entry("cables", self.cables.to_string().as_bytes());
        for (mac, name, addresses) in &self.wires {
            let card = [mac.clone(), name.clone()].into_iter();
            let words: Vec<String> = card.chain(addresses.iter().map(ToString::to_string)).collect();
            entry("wire", words.join(" ").as_bytes());
        }
        let mut pair =
            |word: &str, (name, value): &(String, String)| entry(word, format!("{name}={value}").as_bytes());
        self.settings.iter().for_each(|setting| pair("sysctl", setting));
        self.environment.iter().for_each(|variable| pair("set", variable));
        self.routes.iter().for_each(|route| entry("route", route.to_string().as_bytes()));
        if let Some((name, topology)) = &self.node {
            entry("node", format!("{name}={topology}").as_bytes());
        }
        entry("folder", &path(&self.folder));
        self.words.iter().for_each(|word| entry("word", word.as_bytes()));
        bytes
    }

    /// From bytes; what is not understood is left out.
    pub fn read(bytes: &[u8]) -> Orders {
        let mut orders = Orders::default();
        for entry in bytes.split(|byte| *byte == 0) {
            let Some(gap) = entry.iter().position(|byte| *byte == b' ') else { continue };
            let (word, value) = (&entry[..gap], &entry[gap + 1..]);
            let (text, path) = (String::from_utf8_lossy(value).into_owned(), OsStr::from_bytes(value).into());
            match word {
                b"module" => orders.modules.push(path),
                b"optional" => orders.optional.push(path),
                b"cables" => orders.cables = text.parse().unwrap_or(0),
                b"wire" => {
                    let mut words = text.split(' ');
                    let [mac, name] = [0, 1].map(|_| words.next().unwrap_or_default().to_owned());
                    orders.wires.push((mac, name, words.filter_map(Prefix::parse).collect()));
                }
                b"folder" => orders.folder = path,
                b"sysctl" => orders.settings.extend(pair(&text)),
                b"route" => orders.routes.extend(StaticRoute::parse(&text)),
                b"node" => orders.node = pair(&text),
                b"set" => orders.environment.extend(pair(&text)),
                b"word" => orders.words.push(text),
                _ => {}
            }
        }
        orders
    }
}

/// A name and a value.
fn pair(text: &str) -> Option<(String, String)> {
    text.split_once('=').map(|(name, value)| (name.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefixes() -> impl Strategy<Value = Prefix> {
        (any::<std::net::IpAddr>(), 0..=32u8).prop_map(|(address, length)| Prefix { address, length })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            modules in prop::collection::vec("/[a-z/ ]{1,12}", 0..4),
            optional in prop::collection::vec("/[a-z/ ]{1,12}", 0..4),
            cables: u8,
            wires in prop::collection::vec(("[0-9a-f:]{1,17}", "[a-z0-9.]{1,15}", prop::collection::vec(prefixes(), 0..3)), 0..3),
            settings in prop::collection::vec(("net[.a-z]{1,8}", "\\PC{0,12}"), 0..4),
            vias in prop::collection::vec((any::<std::net::Ipv4Addr>(), 0..=32u8), 0..3),
            node in prop::option::of(("[a-z0-9]{1,8}", "\\PC{0,20}")),
            folder in "/\\PC{0,12}",
            set in prop::collection::vec(("[A-Z_]{1,8}", "\\PC{0,12}"), 0..4),
            words in prop::collection::vec("\\PC{0,12}", 0..6),
        ) {
            let paths = |names: Vec<String>| names.into_iter().map(PathBuf::from).collect();
            let (modules, optional) = (paths(modules), paths(optional));
            let route = |(via, length)| StaticRoute::parse(&format!("10.0.0.0/{length} via {via}"));
            let routes = vias.into_iter().filter_map(route).collect();
            let folder = folder.into();
            let orders = Orders { modules, optional, cables, wires, settings, routes, node, folder, environment: set, words };
            prop_assert_eq!(Orders::read(&orders.write()), orders);
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            Orders::read(&noise);
        }
    }
}
