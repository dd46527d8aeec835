//! `pathlab shims`: links by the names that Mininet starts.

use crate::output::{Output, object};
use clap::Args;
use record::{Problem, Result};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names, those of the programs of the OpenFlow reference implementation.
pub const NAMES: [&str; 4] = ["ofdatapath", "ofprotocol", "dpctl", "controller"];

/// Flags of `pathlab shims`.
#[derive(Args)]
pub struct ShimsArgs {
    /// The folder for the links (created if it does not exist); put it first in Mininet's PATH.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Makes the links.
pub fn run(args: ShimsArgs, output: &Output) -> Result<()> {
    let cannot = |e: std::io::Error| {
        Problem::host(format!("cannot make the links: {e}"))
            .at(args.folder.display().to_string())
            .help("name a folder that you may write to")
    };
    let program = std::env::current_exe().map_err(cannot)?;
    std::fs::create_dir_all(&args.folder).map_err(cannot)?;
    for name in NAMES {
        link(&program, &args.folder.join(name))?;
    }
    let folder = args.folder.display().to_string();
    let document = object! {
        schema: "pathlab/shims/1",
        folder: &folder,
        program: program.display().to_string(),
        links: NAMES,
    };
    output.result(&document, |_| {
        let whole = std::path::absolute(&args.folder).unwrap_or_else(|_| args.folder.clone());
        let line = format!("PATH={}:$PATH mn --switch user --test pingall", whole.display());
        format!("{} in {folder}; as root: {line}", NAMES.join(", "))
    })
}

/// Makes one link. A link to pathlab is replaced; anything else with that name is left alone.
fn link(program: &Path, place: &Path) -> Result<()> {
    let told = |e: std::io::Error| {
        Problem::host(format!("cannot make the link: {e}")).at(place.display().to_string())
    };
    match std::fs::read_link(place) {
        Ok(old) if old.file_name() == program.file_name() => std::fs::remove_file(place).map_err(told)?,
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        // EINVAL: it is not a link.
        Err(e) if e.kind() != ErrorKind::InvalidInput => return Err(told(e)),
        _ => {
            return Err(Problem::input("something else with this name exists")
                .at(place.display().to_string())
                .help("name another folder, or remove it"));
        }
    }
    symlink(program, place).map_err(told)
}
