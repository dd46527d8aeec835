//! Functions of programs and libraries by address: the symbol tables of ELF files.
//!
//! **What.** [`Memory`] is what of which file a process has mapped where (`/proc/PID/maps`), [`Images`] are these files, opened while the
//! process lives, and [`FunctionTable`] has the functions of one. **Why open at once.** A process may be gone when its samples are named; its files
//! may be in another mount namespace, or deleted.
//!
//! **What it cannot name.** Code of a file without a symbol table (most packages come without one; the functions that a library exports
//! remain), and code that was made at run time.
//!
//! **Price.** A table is read once in a process, and only if a sample fell into its file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// Files that are held open at most.
const MOST_FILES: usize = 256;

/// A part of a file that a process may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    start: u64,
    end: u64,
    /// Where in the file it begins.
    offset: u64,
    /// Device and inode, as `/proc/PID/maps` has them.
    file: (String, u64),
    path: String,
}

/// What a process may run, in the order of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory(Vec<Mapped>);

impl Memory {
    /// From `/proc/PID/maps`; lines that it does not have are passed over.
    pub fn parse(text: &str) -> Memory {
        Memory(text.lines().filter_map(parse_line).collect())
    }

    fn at(&self, address: u64) -> Option<&Mapped> {
        self.0.iter().find(|one| (one.start..one.end).contains(&address))
    }
}

fn parse_line(line: &str) -> Option<Mapped> {
    let mut words = line.splitn(6, ' ');
    let (range, access, offset) = (words.next()?, words.next()?, words.next()?);
    let (device, inode, path) = (words.next()?, words.next()?, words.next().unwrap_or(""));
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let file = (device.to_owned(), inode.parse().ok()?);
    let path = path.trim_start().to_owned();
    access.contains('x').then_some(Mapped {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        file,
        path,
    })
}

/// Files that samples may have fallen into.
#[derive(Debug, Default)]
pub struct Images {
    files: HashMap<(String, u64), Option<File>>,
    tables: HashMap<(String, u64), Option<Arc<FunctionTable>>>,
}

impl Images {
    /// What a process has mapped now, and opens the files; none if it is gone.
    pub fn look_at(&mut self, pid: u32) -> Option<Memory> {
        let memory = Memory::parse(&fs::read_to_string(format!("/proc/{pid}/maps")).ok()?);
        for one in memory.0.iter().filter(|one| one.file.1 != 0) {
            if self.files.len() < MOST_FILES && !self.files.contains_key(&one.file) {
                self.files.insert(one.file.clone(), open(pid, one));
            }
        }
        Some(memory)
    }

    /// The function of an address in that memory; the file's name in brackets where it has none, none where nothing is mapped.
    pub fn function(&mut self, memory: &Memory, address: u64) -> Option<String> {
        let mapped = memory.at(address)?;
        let files = &self.files;
        let table = self
            .tables
            .entry(mapped.file.clone())
            .or_insert_with(|| FunctionTable::of(files.get(&mapped.file)?.as_ref()?));
        let name = table.as_ref().and_then(|table| table.function(address - mapped.start + mapped.offset));
        Some(name.unwrap_or_else(|| nameless(&mapped.path)))
    }
}

/// `[libc.so.6]`, `[vdso]`; of memory without a file `[code made at run time]`.
fn nameless(path: &str) -> String {
    match path.rsplit('/').next().unwrap_or_default() {
        "" => "[code made at run time]".into(),
        name if name.starts_with('[') => name.to_owned(),
        name => format!("[{}]", name.trim_end_matches(" (deleted)")),
    }
}

/// The file behind a mapping, wherever it is by now.
fn open(pid: u32, one: &Mapped) -> Option<File> {
    let Mapped { start, end, path, .. } = one;
    let by_range = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    let by_path = format!("/proc/{pid}/root{path}");
    [by_range, by_path].iter().find_map(|place| File::open(place).ok())
}

/// Functions of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FunctionTable {
    /// Parts of the file: where, how long, and the address they are made for.
    segments: Vec<(u64, u64, u64)>,
    /// Address, size and name.
    functions: Vec<(u64, u64, String)>,
}

/// A file by device, inode and when it was changed.
type FileKey = (u64, u64, i64);

/// Tables that were read, for the tests that follow.
static TABLES: LazyLock<Mutex<HashMap<FileKey, Option<Arc<FunctionTable>>>>> = LazyLock::new(Mutex::default);

impl FunctionTable {
    /// That of a file; none if it is not ELF.
    fn of(file: &File) -> Option<Arc<FunctionTable>> {
        let facts = file.metadata().ok()?;
        let key = (facts.dev(), facts.ino(), facts.mtime());
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        tables.entry(key).or_insert_with(|| FunctionTable::read(file).map(Arc::new)).clone()
    }

    /// Reads the symbols of functions, those for linking and those that are exported.
    pub fn read(file: &File) -> Option<FunctionTable> {
        let cache = ReadCache::new(file.try_clone().ok()?);
        let object = object::File::parse(&cache).ok()?;
        let segments = object.segments().map(|one| (one.file_range().0, one.file_range().1, one.address()));
        let symbols = object.symbols().chain(object.dynamic_symbols());
        let functions = symbols.filter(|one| one.kind() == SymbolKind::Text && one.is_definition());
        let function = |one: object::Symbol<'_, '_, _>| {
            let name = one.name().ok().filter(|name| !name.is_empty())?;
            Some((one.address(), one.size(), name.to_owned()))
        };
        let mut table = FunctionTable {
            segments: segments.collect(),
            functions: functions.filter_map(function).collect(),
        };
        table.functions.sort();
        table.functions.dedup_by_key(|(address, ..)| *address);
        Some(table)
    }

    /// The function at that place of the file, without what the compiler put behind its name.
    fn function(&self, offset: u64) -> Option<String> {
        let inside = |one: &&(u64, u64, u64)| (one.0..one.0.saturating_add(one.1)).contains(&offset);
        let (begin, _, made_for) = self.segments.iter().find(inside)?;
        let address = (offset - begin).checked_add(*made_for)?;
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.functions.get(after.checked_sub(1)?)?;
        // Hand-written assembly has no sizes.
        (*size == 0 || address - start < *size).then(|| format!("{:#}", rustc_demangle::demangle(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[inline(never)]
    fn a_function_of_this_test() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_function_of_this_program_is_found_where_it_runs() {
        assert_eq!(a_function_of_this_test(), 7);
        let mut images = Images::default();
        let memory = images.look_at(std::process::id()).unwrap();
        let address = a_function_of_this_test as fn() -> u64 as usize as u64;
        let name = images.function(&memory, address).unwrap();
        assert!(name.ends_with("tests::a_function_of_this_test"), "{name}");
        assert_eq!(images.function(&memory, 16), None, "nothing is mapped there");
        assert_eq!(images.look_at(u32::MAX), None);
    }

    #[test]
    fn what_has_no_symbols_has_the_name_of_its_file() {
        let text = "55d0-66d0 r-xp 00001000 08:01 77 /usr/bin/some thing\n\
                    7000-8000 r-xp 00000000 00:00 0                          [vdso]\n\
                    8000-9000 rwxp 00000000 00:00 0 \nnoise\n9000-a000 rw-p 00000000 00:00 0\n";
        let memory = Memory::parse(text);
        assert_eq!(memory.0.len(), 3);
        let mut images = Images::default();
        let name = |images: &mut Images, address| images.function(&memory, address);
        assert_eq!(name(&mut images, 0x5600).as_deref(), Some("[some thing]"));
        assert_eq!(name(&mut images, 0x7010).as_deref(), Some("[vdso]"));
        assert_eq!(name(&mut images, 0x8010).as_deref(), Some("[code made at run time]"));
        assert_eq!(name(&mut images, 0x9010), None, "it may not be run");
    }

    #[test]
    fn a_file_that_is_not_elf_has_no_table() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(FunctionTable::read(&file), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "[0-9a-f rxp:/-]{0,120}", address: u64) {
            let _ = Memory::parse(&text).at(address);
        }
    }
}
