//! `pathlab completions` and `pathlab man`: made from the same table of commands as the help.

use crate::output::{Output, object};
use clap::{Args, Command};
use record::{Problem, Result};
use std::path::PathBuf;

/// Flags of `pathlab completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Prints the completion script of all commands.
pub fn completions(args: CompletionsArgs, mut all: Command, output: &Output) -> Result<()> {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut all, "pathlab", &mut script);
    let script = String::from_utf8_lossy(&script);
    let document =
        object! { schema: "pathlab/completions/1", shell: args.shell.to_string(), script: &script };
    output.result(&document, |_| script.to_string())
}

/// Flags of `pathlab man`.
#[derive(Args)]
pub struct ManArgs {
    /// The folder for the pages (created if it does not exist).
    folder: PathBuf,
}

/// Writes one manual page for every command.
pub fn man(args: ManArgs, all: Command, output: &Output) -> Result<()> {
    let cannot = |e: std::io::Error| {
        Problem::host(format!("cannot write the manual pages: {e}"))
            .at(args.folder.display().to_string())
            .help("name a folder that you may write to")
    };
    std::fs::create_dir_all(&args.folder).map_err(cannot)?;
    clap_mangen::generate_to(all, &args.folder).map_err(cannot)?;
    let mut pages: Vec<String> = std::fs::read_dir(&args.folder)
        .map_err(cannot)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("pathlab") && name.ends_with(".1"))
        .collect();
    pages.sort();
    let folder = args.folder.display().to_string();
    let document = object! { schema: "pathlab/man/1", folder, pages };
    output.result(&document, |document| format!("{} pages in {}", document.pages.len(), document.folder))
}
