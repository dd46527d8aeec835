//! The compiler of tcpdump's filter language, taken from libpcap when it is installed.
//!
//! **What.** [`compile`] turns an expression (`man pcap-filter`) into instructions. libpcap is loaded when the
//! first filter is compiled, and only `pcap_open_dead`, `pcap_compile` and what belongs to them are used: no capture goes
//! through it.
//!
//! **Why.** The language is what people know, and forty years of its corners are in that compiler. Loaded at run time,
//! pathlab needs no headers to be built and runs without libpcap as long as nobody filters.
//!
//! **Price.** One system library. What it returns is checked by `wire::filter::Program::new` before anyone runs it.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};
use wire::filter::FilterInstruction;

/// The link type of Ethernet (`LINKTYPE_ETHERNET`).
pub const ETHERNET: u16 = 1;

/// The names under which libpcap is found: Debian's, everybody's, the developer's.
const NAMES: [&str; 3] = ["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"];

/// `PCAP_NETMASK_UNKNOWN` of `pcap/pcap.h`.
const NETMASK_UNKNOWN: c_uint = 0xffff_ffff;

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    count: c_uint,
    /// `struct bpf_insn` has the fields of the kernel's `struct sock_filter`.
    instructions: *mut libc::sock_filter,
}

/// The functions that are used. The library is never unloaded.
struct Functions {
    open_dead: unsafe extern "C" fn(c_int, c_int) -> *mut c_void,
    close: unsafe extern "C" fn(*mut c_void),
    compile: unsafe extern "C" fn(*mut c_void, *mut RawProgram, *const c_char, c_int, c_uint) -> c_int,
    free_code: unsafe extern "C" fn(*mut RawProgram),
    get_error: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

impl Functions {
    /// Loads the library.
    fn load() -> Result<Functions, String> {
        let mut why = String::new();
        for name in NAMES {
            // SAFETY: libpcap's initialisers have no conditions.
            match unsafe { Library::new(name) } {
                // SAFETY: the types are those of `pcap/pcap.h`, which have been the same since libpcap 0.8.
                Ok(library) => return unsafe { Functions::of(library) }.map_err(|e| e.to_string()),
                Err(error) if why.is_empty() => why = error.to_string(),
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// SAFETY: the library must be libpcap.
    unsafe fn of(library: Library) -> Result<Functions, libloading::Error> {
        // It stays for the life of the process, so the functions do, too.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: promised by the caller.
        unsafe {
            Ok(Functions {
                open_dead: *library.get(b"pcap_open_dead\0")?,
                close: *library.get(b"pcap_close\0")?,
                compile: *library.get(b"pcap_compile\0")?,
                free_code: *library.get(b"pcap_freecode\0")?,
                get_error: *library.get(b"pcap_geterr\0")?,
            })
        }
    }
}

fn loaded() -> Result<&'static Functions, &'static str> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(Functions::load).as_ref().map_err(String::as_str)
}

/// Why the library cannot be used here, in the loader's words; `None` when it can.
pub fn missing() -> Option<&'static str> {
    loaded().err()
}

/// A compiled expression, as libpcap holds it.
struct Compiled {
    functions: &'static Functions,
    raw: RawProgram,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: filled by pcap_compile, freed once.
        unsafe { (self.functions.free_code)(&mut self.raw) }
    }
}

impl Compiled {
    fn new(expression: &str, link: u16, snap: u32) -> Result<Compiled, String> {
        // pcap_compile had static state before 1.8.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let functions = loaded()?;
        let text = CString::new(expression).map_err(|_| "it holds a zero byte")?;
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: plain numbers.
        let handle = unsafe { (functions.open_dead)(data_link(link), snap.min(1 << 30) as c_int) };
        let handle = NonNull::new(handle).ok_or("libpcap has no memory")?;
        let mut raw = RawProgram { count: 0, instructions: std::ptr::null_mut() };
        // SAFETY: an open handle, a program to fill, a text that ends with zero.
        let result =
            unsafe { (functions.compile)(handle.as_ptr(), &mut raw, text.as_ptr(), 1, NETMASK_UNKNOWN) };
        let wrong = (result != 0).then(|| {
            // SAFETY: the text belongs to the handle, which is still open.
            let why = unsafe { CStr::from_ptr((functions.get_error)(handle.as_ptr())) };
            why.to_string_lossy().trim().to_owned()
        });
        // SAFETY: opened above, closed once.
        unsafe { (functions.close)(handle.as_ptr()) };
        match wrong {
            Some(why) => Err(why),
            None => Ok(Compiled { functions, raw }),
        }
    }

    fn instructions(&self) -> &[libc::sock_filter] {
        if self.raw.instructions.is_null() {
            return &[];
        }
        // SAFETY: pcap_compile made so many of them.
        unsafe { std::slice::from_raw_parts(self.raw.instructions, self.raw.count as usize) }
    }
}

/// Link types of files and libpcap's own numbers for them differ for raw IP (`pcap-common.c`).
fn data_link(link: u16) -> c_int {
    match link {
        101 => 12,
        other => other.into(),
    }
}

/// Compiles an expression for frames of a link type (`LINKTYPE_…`); the program wants `snap` bytes of what it likes. It is not
/// checked.
///
/// # Errors
/// Libpcap's words: the expression is wrong, or the library is not there.
pub fn compile(expression: &str, link: u16, snap: u32) -> Result<Vec<FilterInstruction>, String> {
    let compiled = Compiled::new(expression, link, snap)?;
    let instruction = |&libc::sock_filter { code, jt, jf, k }: &libc::sock_filter| FilterInstruction {
        code,
        if_true: jt,
        if_false: jf,
        k,
    };
    Ok(compiled.instructions().iter().map(instruction).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;
    use wire::filter::Program;

    /// Every corner of the language that compiles for Ethernet without a network.
    const EXPRESSIONS: [&str; 70] = [
        "",
        "ip",
        "ip6",
        "arp",
        "rarp",
        "tcp",
        "udp",
        "icmp",
        "icmp6",
        "sctp",
        "igmp",
        "not ip",
        "host 10.0.0.1",
        "src host 10.0.0.1",
        "dst host 10.0.0.2",
        "net 10.0.0.0/8",
        "src net 10.0.0.0 mask 255.255.255.0",
        "not net 10.0.0.0/30",
        "port 53",
        "src port 53",
        "dst port 4000",
        "tcp port 80 or tcp port 443",
        "udp and not port 53",
        "portrange 10-1000",
        "src portrange 1-100",
        "tcp portrange 20-25",
        "ether host 02:00:00:00:00:01",
        "ether src 02:00:00:00:00:01",
        "ether dst ff:ff:ff:ff:ff:ff",
        "ether proto 0x88b5",
        "broadcast",
        "multicast",
        "ether multicast",
        "ip multicast",
        "ip6 multicast",
        "vlan",
        "vlan 5",
        "vlan and ip",
        "vlan 5 and udp port 53",
        "vlan and vlan 7",
        "vlan 5 or ip",
        "mpls",
        "mpls 100 and ip",
        "pppoes",
        "pppoes and ip",
        "greater 100",
        "less 64",
        "len > 100",
        "len - 14 == 46",
        "len % 7 == 3",
        "ip proto 47",
        "ip6 proto 17",
        "ip[0] & 0xf != 5",
        "ip[6:2] & 0x1fff != 0",
        "ip[2:2] > 60",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "tcp[13] == 18",
        "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
        "udp[4:2] / 3 = 12",
        "udp[8:2] == 0x704c",
        "icmp[icmptype] == icmp-echo",
        "icmp6[icmp6type] == icmp6-echo",
        "ether[12:2] > 1500",
        "ether[len - 1] = 0",
        "ether[ip[0] & 7 + 20] != 3",
        "ip[8] < 5 and (udp or tcp)",
        "src host fd00::1 or dst net fd00::/16",
        "ip6 and udp portrange 1-60000",
        "(tcp and (port 80 or 443)) or (udp and port 53) or arp",
        "not (tcp or udp or icmp or arp) and len <= 1500",
    ];

    fn available() -> bool {
        if let Some(why) = missing() {
            eprintln!("SKIP: filters: libpcap cannot be loaded: {why}");
        }
        missing().is_none()
    }

    /// What is compiled, checked.
    fn program(expression: &str, link: u16, snap: u32) -> Result<Program, String> {
        Program::new(compile(expression, link, snap)?).map_err(|refused| refused.to_string())
    }

    static PROGRAMS: LazyLock<Vec<(Program, Mutex<SendTwin>)>> = LazyLock::new(|| {
        let make = |text: &&str| {
            let both = (program(text, ETHERNET, 65535), Twin::new(text, ETHERNET, 65535));
            let (Ok(program), Ok(twin)) = both else { panic!("'{text}'") };
            (program, Mutex::new(SendTwin(twin)))
        };
        EXPRESSIONS.iter().map(make).collect()
    });

    /// `struct pcap_pkthdr`.
    #[repr(C)]
    struct FrameHeader {
        time: libc::timeval,
        captured: u32,
        length: u32,
    }

    type OfflineFilter = unsafe extern "C" fn(*const RawProgram, *const FrameHeader, *const u8) -> c_int;

    /// libpcap's own interpreter: the slow twin of [`Program::run`].
    struct Twin {
        compiled: Compiled,
        run: OfflineFilter,
    }

    impl Twin {
        /// Compiles as [`compile`] does.
        fn new(expression: &str, link: u16, snap: u32) -> Result<Twin, String> {
            let compiled = Compiled::new(expression, link, snap)?;
            // SAFETY: libpcap's initialisers have no conditions; the type is that of `pcap/pcap.h`.
            let run = unsafe {
                let library = NAMES.iter().find_map(|name| Library::new(name).ok()).unwrap();
                *Box::leak(Box::new(library)).get(b"pcap_offline_filter\0").unwrap()
            };
            Ok(Twin { compiled, run })
        }

        /// What libpcap says about the frame.
        fn run(&self, frame: &[u8], wire_length: u32) -> u32 {
            let time = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let header = FrameHeader { time, captured: frame.len() as u32, length: wire_length };
            // SAFETY: a compiled program, and as many bytes as the header says.
            unsafe { (self.run)(&self.compiled.raw, &header, frame.as_ptr()) as u32 }
        }
    }

    struct SendTwin(Twin);
    // SAFETY: a compiled program has no thread of its own.
    unsafe impl Send for SendTwin {}

    /// Frames that look like something: headers as networks have them, then damaged and cut.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let first = prop::sample::select(vec![
            vec![0x08u8, 0x00],
            vec![0x86, 0xdd],
            vec![0x08, 0x06],
            vec![0x81, 0x00, 0x00, 0x05, 0x08, 0x00],
            vec![0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x00, 0x07, 0x08, 0x00],
            vec![0x88, 0x47, 0x00, 0x06, 0x41, 0xff],
            vec![0x88, 0x64, 0x11, 0x00, 0x00, 0x01, 0x00, 0x30, 0x00, 0x21],
            vec![0x00, 0x30],
        ]);
        let protocol = prop::sample::select(vec![1u8, 2, 6, 17, 47, 58, 132, 0, 44]);
        let port = prop::sample::select(vec![20u16, 53, 80, 443, 4000, 999]);
        let damage = prop::collection::vec((0usize..120, any::<u8>()), 0..3);
        (first, protocol, port, damage, prop::collection::vec(any::<u8>(), 40..120), 14usize..150).prop_map(
            |(first, protocol, port, damage, rest, cut)| {
                let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
                frame.extend(&first);
                let at = frame.len();
                frame.extend(rest);
                if first.ends_with(&[0x86, 0xdd]) {
                    frame[at] = 0x60;
                    frame[at + 6] = protocol;
                    frame[at + 8..at + 10].copy_from_slice(&[0xfd, 0]);
                    frame.splice(at + 40..at + 40, port.to_be_bytes());
                } else {
                    frame[at..at + 2].copy_from_slice(&[0x45, 0]);
                    frame[at + 6..at + 8].copy_from_slice(&[0x40, 0]);
                    frame[at + 9] = protocol;
                    frame[at + 12..at + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
                    frame[at + 20..at + 22].copy_from_slice(&port.to_be_bytes());
                }
                for (place, byte) in damage {
                    let length = frame.len();
                    frame[place % length] = byte;
                }
                frame.truncate(cut);
                frame
            },
        )
    }

    fn agree(frame: &[u8], wire_length: u32) -> Result<(), TestCaseError> {
        for (text, (program, twin)) in EXPRESSIONS.iter().zip(PROGRAMS.iter()) {
            let theirs = twin.lock().unwrap().0.run(frame, wire_length);
            prop_assert_eq!(program.run(frame, wire_length), theirs, "'{}' of {:02x?}", text, frame);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn our_interpreter_judges_as_libpcaps(frame in frames(), beyond in 0u32..2000) {
            if available() {
                agree(&frame, frame.len() as u32 + beyond)?;
            }
        }

        #[test]
        fn also_frames_that_are_noise(frame in prop::collection::vec(any::<u8>(), 0..80)) {
            if available() {
                agree(&frame, frame.len() as u32)?;
            }
        }
    }

    #[test]
    fn every_expression_says_yes_to_something_and_no_to_something() {
        if !available() {
            return;
        }
        use proptest::strategy::{Strategy, ValueTree};
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let mut said = vec![[0u32; 2]; EXPRESSIONS.len()];
        for _ in 0..3000 {
            let frame = frames().new_tree(&mut runner).unwrap().current();
            for (i, (program, _)) in PROGRAMS.iter().enumerate() {
                said[i][usize::from(program.run(&frame, frame.len() as u32) > 0)] += 1;
            }
        }
        let one_sided: Vec<_> =
            EXPRESSIONS.iter().zip(&said).filter(|(_, counts)| counts.contains(&0)).collect();
        // The frames are random: a few expressions ask for what is too rare among them.
        assert!(one_sided.len() <= 14, "the frames do not tell much about {one_sided:?}");
    }

    #[test]
    fn a_wrong_expression_is_told_in_libpcaps_words() {
        if !available() {
            return;
        }
        let said = program("udp prot 53", ETHERNET, 100).unwrap_err();
        assert!(said.contains("syntax error"), "{said}");
        assert!(compile("ip\0", ETHERNET, 100).is_err());
        // It loops (a jump backwards), which no kernel runs.
        let said = program("ip protochain 6", ETHERNET, 100).unwrap_err();
        assert!(said.contains("jumps out of the program"), "{said}");
    }

    #[test]
    fn the_link_type_and_the_snap_length_are_in_the_program() {
        if !available() {
            return;
        }
        let raw = program("ip", 101, 77).unwrap();
        assert_eq!(raw.run(&[0x45; 20], 20), 77);
        assert_eq!(program("ip", ETHERNET, 77).unwrap().run(&[0x45; 20], 20), 0);
    }
}
