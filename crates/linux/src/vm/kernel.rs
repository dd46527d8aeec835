//! The kernel of a machine: its file, and the modules that it needs in the order in which they can be loaded.

use std::fs;
use std::path::{Path, PathBuf};

use record::{Problem, Result};

/// A folder with the programs and kernels of unpacked packages, looked at before the host's.
pub const VARIABLE: &str = "PATHLAB_VM";

/// A kernel that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The file that is started (`vmlinuz`).
    pub file: PathBuf,
    /// Its release, as `uname -r` says it.
    pub release: String,
    /// The folder of its modules; none: what it needs is part of it.
    pub modules: Option<PathBuf>,
}

/// Where programs, kernels and modules may be: below the folder of [`VARIABLE`], then below the root.
pub(super) fn roots() -> Vec<PathBuf> {
    let own = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    own.into_iter().chain([PathBuf::from("/")]).collect()
}

impl Kernel {
    /// The kernel of that file, with the modules of that folder, or those that lie where packages put them.
    ///
    /// # Errors
    /// Input: there is no such file or folder.
    pub fn at(file: &Path, modules: Option<&Path>) -> Result<Kernel> {
        let shown = |path: &Path| path.display().to_string();
        if !file.is_file() {
            let what = "there is no such file of a kernel";
            return Err(Problem::input(what).at(shown(file)).help("name a vmlinuz"));
        }
        if let Some(folder) = modules.filter(|folder| !folder.is_dir()) {
            let what = "there is no such folder of modules";
            return Err(Problem::input(what).at(shown(folder)).help("name the one that holds modules.dep"));
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let release = name.split_once('-').map_or(name.clone(), |(_, release)| release.to_owned());
        let root = file.parent().and_then(Path::parent).map(Path::to_owned);
        let usual = root.into_iter().chain(roots()).flat_map(|root| folders(&root, &release));
        let modules = modules.map(Path::to_owned).or_else(|| usual.into_iter().find(|it| it.is_dir()));
        Ok(Kernel { file: file.to_owned(), release, modules })
    }

    /// The newest kernel of the first root that has one, with the modules as [`Kernel::at`] finds them.
    ///
    /// # Errors
    /// Host: there is none. Input: there is no such folder of modules.
    pub fn newest(modules: Option<&Path>) -> Result<Kernel> {
        for root in roots() {
            let entries = fs::read_dir(root.join("boot")).into_iter().flatten().flatten();
            let named = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
            };
            let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(named).collect();
            files.sort_by_key(|file| parts(&file.to_string_lossy()));
            if let Some(file) = files.last() {
                return Kernel::at(file, modules);
            }
        }
        let help = format!(
            "install linux-image-amd64, name the file with --kernel, or name an unpacked package's folder in ${VARIABLE}"
        );
        Err(Problem::host("no kernel for a virtual machine was found: there is no /boot/vmlinuz-*")
            .help(help))
    }

    /// The files of these modules and of those that they need, each after what it needs; a name that the kernel does not have as a module is left
    /// out.
    ///
    /// # Errors
    /// Host: the list of modules cannot be read.
    pub fn modules_for(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let Some(folder) = &self.modules else { return Ok(vec![]) };
        let list = folder.join("modules.dep");
        let text = fs::read_to_string(&list).map_err(|error| {
            let help = format!("run 'depmod -b ROOT {}' for a kernel that was only unpacked", self.release);
            Problem::host(format!("cannot read the list of modules: {error}"))
                .at(list.display().to_string())
                .help(help)
        })?;
        Ok(in_order(&text, names).into_iter().map(|file| folder.join(file)).collect())
    }

    /// Whether a module of that name is part of the kernel or among its modules.
    pub fn has(&self, name: &str) -> bool {
        let Some(folder) = &self.modules else { return true };
        let lists = ["modules.dep", "modules.builtin"].map(|list| fs::read_to_string(folder.join(list)));
        let files = lists.iter().flatten().flat_map(|text| text.lines());
        files.filter_map(|line| line.split(':').next()).any(|file| module_name(file) == name)
    }
}

fn folders(root: &Path, release: &str) -> [PathBuf; 2] {
    ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder).join(release))
}

/// The numbers of a version, for the order of versions.
fn parts(name: &str) -> Vec<u64> {
    let parts = name.split(|letter: char| !letter.is_ascii_digit());
    parts.filter(|part| !part.is_empty()).map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

/// `kernel/net/802/stp.ko.xz` is `stp`; hyphens and underscores are one in names of modules.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

/// The files of `modules.dep` (`FILE: WHAT IT NEEDS…`, what is needed first last) that these modules need, each once and after its own needs.
fn in_order<'a>(list: &'a str, names: &[&str]) -> Vec<&'a str> {
    let lines: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once(':')).collect();
    let mut files: Vec<&str> = vec![];
    for name in names {
        let Some((file, needs)) = lines.iter().find(|(file, _)| module_name(file) == *name) else { continue };
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "kernel/net/8021q/8021q.ko.xz: kernel/net/802/mrp.ko.xz kernel/net/802/garp.ko.xz kernel/net/llc/llc.ko.xz\n\
                        kernel/net/802/mrp.ko.xz:\nkernel/net/llc/llc.ko.xz:\nkernel/net/802/garp.ko.xz: kernel/net/llc/llc.ko.xz\n\
                        kernel/net/9p/9pnet.ko.xz:\nkernel/drivers/net/net-failover.ko:\n";

    #[test]
    fn a_module_comes_after_what_it_needs_and_once() {
        let files = in_order(LIST, &["garp", "8021q", "absent", "net_failover"]);
        let names: Vec<String> = files.iter().map(|file| module_name(file)).collect();
        assert_eq!(names, ["llc", "garp", "mrp", "8021q", "net_failover"]);
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut names = ["vmlinuz-6.12.9-amd64", "vmlinuz-6.1.0-50-amd64", "vmlinuz-6.12.95+deb12-amd64"];
        names.sort_by_key(|name| parts(name));
        assert_eq!(names, ["vmlinuz-6.1.0-50-amd64", "vmlinuz-6.12.9-amd64", "vmlinuz-6.12.95+deb12-amd64"]);
    }

    #[test]
    fn a_kernel_knows_its_release_and_finds_its_modules() {
        let root = tempfile::tempdir().unwrap();
        let (boot, modules) = (root.path().join("boot"), root.path().join("usr/lib/modules/6.1.0-50-amd64"));
        fs::create_dir_all(&boot).unwrap();
        fs::create_dir_all(&modules).unwrap();
        let file = boot.join("vmlinuz-6.1.0-50-amd64");
        assert!(Kernel::at(&file, None).unwrap_err().to_string().contains("no such file of a kernel"));
        fs::write(&file, "").unwrap();
        fs::write(modules.join("modules.builtin"), "kernel/net/packet/af_packet.ko\n").unwrap();
        let kernel = Kernel::at(&file, None).unwrap();
        assert_eq!((kernel.release.as_str(), kernel.modules.as_ref()), ("6.1.0-50-amd64", Some(&modules)));
        assert!(kernel.modules_for(&["stp"]).unwrap_err().to_string().contains("depmod"));
        fs::write(modules.join("modules.dep"), LIST).unwrap();
        assert_eq!(kernel.modules_for(&["mrp"]).unwrap(), [modules.join("kernel/net/802/mrp.ko.xz")]);
        assert!(kernel.has("af_packet") && kernel.has("8021q") && !kernel.has("igb"));
        assert!(Kernel::at(&file, Some(&boot.join("none"))).is_err());
    }
}
