//! The first file system of a machine: a cpio archive in the form `newc`, which the kernel unpacks into memory
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;
/// What ends an archive.
const LAST: &str = "TRAILER!!!";

/// An archive that grows.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<PathBuf>,
    entries: u32,
}

impl Archive {
    /// Adds a file, which may be carried out, and the folders that lead to it. The path is absolute.
    pub fn file(&mut self, path: &Path, content: &[u8]) {
        self.folders_to(path);
        self.entry(path, PROGRAM, content, (0, 0));
    }

    /// Adds a folder.
    pub fn folder(&mut self, path: &Path) {
        self.folders_to(&path.join("x"));
    }

    /// Adds a device of characters by its numbers.
    pub fn device(&mut self, path: &Path, major: u32, minor: u32) {
        self.folders_to(path);
        self.entry(path, DEVICE, &[], (major, minor));
    }

    /// The archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new(LAST), 0, &[], (0, 0));
        self.bytes
    }

    fn folders_to(&mut self, path: &Path) {
        let mut missing: Vec<&Path> = path.ancestors().skip(1).filter(|it| it.parent().is_some()).collect();
        missing.retain(|folder| !self.folders.contains(*folder));
        for folder in missing.into_iter().rev() {
            self.entry(folder, FOLDER, &[], (0, 0));
            self.folders.insert(folder.to_owned());
        }
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8], (major, minor): (u32, u32)) {
        self.entries += 1;
        let name = path.strip_prefix("/").unwrap_or(path).as_os_str().as_encoded_bytes();
        let (size, length) = (content.len() as u32, name.len() as u32 + 1);
        // Number, mode, owner, group, links, time, size, device of the file system, device, length of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, major, minor, length, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of an archive, read field by field as the kernel does: name, mode, content.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = vec![];
        let mut at = 0;
        let mut take = |length: usize| {
            let (taken, rest) = bytes.split_at(length);
            bytes = rest;
            at += length;
            let gap = at.next_multiple_of(4) - at;
            (taken.to_vec(), gap)
        };
        loop {
            let (magic, _) = take(6);
            assert_eq!(magic, b"070701");
            let fields: Vec<u32> = (0..13)
                .map(|_| u32::from_str_radix(&String::from_utf8(take(8).0).unwrap(), 16).unwrap())
                .collect();
            let (name, gap) = take(fields[11] as usize);
            take(gap);
            let (content, gap) = take(fields[6] as usize);
            take(gap);
            let name = String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned();
            if name == LAST {
                return found;
            }
            found.push((name, fields[1], content));
        }
    }

    #[test]
    fn an_archive_has_folders_before_their_files_and_each_once() {
        let mut archive = Archive::default();
        archive.device(Path::new("/dev/null"), 1, 3);
        archive.file(Path::new("/init"), b"abc");
        archive.file(Path::new("/a/b/c"), b"12345");
        archive.file(Path::new("/a/b/d"), b"");
        archive.folder(Path::new("/proc"));
        let expected = [
            ("dev", FOLDER, &b""[..]),
            ("dev/null", DEVICE, b""),
            ("init", PROGRAM, b"abc"),
            ("a", FOLDER, b""),
            ("a/b", FOLDER, b""),
            ("a/b/c", PROGRAM, b"12345"),
            ("a/b/d", PROGRAM, b""),
            ("proc", FOLDER, b""),
        ];
        let expected = expected.map(|(name, mode, content)| (name.to_owned(), mode, content.to_vec()));
        assert_eq!(entries(&archive.finish()), expected);
    }
}
