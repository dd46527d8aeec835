//! Runs that are not wanted any more.
//!
//! Nothing is deleted that was not named beyond doubt: names are resolved before the first file goes, and a directory that
//! somebody keeps files of his own in, or that is still being written, stays as it is.

use super::{cannot, file, index};
use record::{Problem, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A run that will be deleted; nobody writes to it meanwhile.
struct Condemned {
    id: String,
    directory: PathBuf,
    files: Vec<PathBuf>,
    _lock: File,
}

/// Deletes runs below `root`: each by its name, the begin of one that no other run has, or `latest`. All of them or, when one
/// cannot be identified or must stay, none. Their names, the oldest first.
///
/// # Errors
/// Input: there is no such run, more than one, it is being written, or holds files that are not of pathlab. Host: a file cannot be
/// removed.
pub fn delete(root: &Path, runs: &[String]) -> Result<Vec<String>> {
    let ids: BTreeSet<String> = runs.iter().map(|run| identify(root, run)).collect::<Result<_>>()?;
    let condemned: Vec<Condemned> =
        ids.into_iter().map(|id| Condemned::examine(root, id)).collect::<Result<_>>()?;
    for run in &condemned {
        let removed = run.files.iter().try_for_each(fs::remove_file);
        removed
            .and_then(|()| fs::remove_dir(&run.directory))
            .map_err(|e| cannot("delete", &run.directory, &e))?;
    }
    index::list(root)?; // takes them out of the index
    Ok(condemned.into_iter().map(|run| run.id).collect())
}

/// The name of the only run that is meant. A path is no name: what lies elsewhere is not deleted from here.
fn identify(root: &Path, run: &str) -> Result<String> {
    super::find(root, run)?.ok_or_else(|| super::not_found(root, run))
}

impl Condemned {
    fn examine(root: &Path, id: String) -> Result<Condemned> {
        let directory = root.join(&id);
        let stays = |why: String| Problem::input(why).at(directory.display().to_string());
        if directory.is_symlink() {
            return Err(stays("this is a link to a run elsewhere".into()).help("remove the link by hand"));
        }
        let files = fs::read_dir(&directory)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .map_err(|e| cannot("read", &directory, &e))?;
        let foreign = files.iter().find(|entry| !entry.file_name().to_str().is_some_and(file::is_ours));
        if let Some(foreign) = foreign {
            let what = format!("'{}' is not of pathlab", foreign.file_name().display());
            return Err(stays(what).help("move it elsewhere, or remove the directory by hand"));
        }
        let lock = index::lock(&directory).map_err(|e| cannot("lock", &directory, &e))?;
        let lock = lock.ok_or_else(|| {
            stays("this run is still being written".into()).help("wait for its end, or interrupt it")
        })?;
        let files = files.iter().map(fs::DirEntry::path).collect();
        Ok(Condemned { id, directory, files, _lock: lock })
    }
}
