//! A file that a command is asked to make, with what it found.
//!
//! It is made before anything else happens, so that a name that is taken, or a full disk's first complaint, comes before the first frame. It
//! is never written over; a command that fails takes its empty file away again.

use record::{Problem, Result};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file that is still empty.
pub struct NewFile {
    path: PathBuf,
    file: Option<File>,
}

impl NewFile {
    /// Makes it.
    ///
    /// # Errors
    /// Input: it exists already, or cannot be made.
    pub fn create(path: &Path) -> Result<NewFile> {
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let refused = |error: std::io::Error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Problem::input("this file exists, and records are never written over")
                    .help("choose another name")
            }
            _ => Problem::input(format!("cannot make the record: {error}")),
        };
        let file = made.map_err(|error| refused(error).at(path.display().to_string()))?;
        Ok(NewFile { path: path.into(), file: Some(file) })
    }

    /// Writes what it is for, and a line end.
    ///
    /// # Errors
    /// Host: the disk is full, or broken.
    pub fn finish(mut self, text: &[u8]) -> Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let written =
            file.write_all(text).and_then(|()| file.write_all(b"\n")).and_then(|()| file.sync_all());
        written.map_err(|error| {
            self.file = Some(file); // so that the rest of it is taken away
            Problem::host(format!("cannot write the record: {error}")).at(self.path.display().to_string())
        })
    }
}

impl Drop for NewFile {
    /// A record that was never finished is removed.
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
