//! Kernel functions by address: `/proc/kallsyms`.
//!
//! The witness knows the address of the call that dropped a frame; people know functions. The file has more than
//! 100 000 lines, so it is read once in a process and only when it is needed. Where the kernel hides addresses
//! (`kernel.kptr_restrict`) they read as zero and nothing resolves.

use std::sync::{Arc, Mutex, OnceLock};

/// Functions in the order of their addresses.
#[derive(Debug, Default)]
pub struct Symbols {
    names: String,
    /// Address, and where its name begins and ends in `names`.
    places: Vec<(u64, u32, u32)>,
}

impl Symbols {
    /// Reads lines of `address type name [module]`; others are passed over.
    pub fn parse(text: &str) -> Symbols {
        let mut symbols = Symbols::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let begin = symbols.names.len() as u32;
            symbols.names.push_str(name);
            symbols.places.push((address, begin, symbols.names.len() as u32));
        }
        symbols.places.sort_by_key(|&(address, ..)| address);
        symbols
    }

    /// True where addresses are hidden, or nothing could be read.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The function that holds the address, without what the compiler put after its name (`.cold`, `.isra.0`).
    pub fn function(&self, address: u64) -> Option<&str> {
        // A return address lies behind its call, hence may be one past the end of a function that never returns.
        let after = self.places.partition_point(|&(start, ..)| start < address);
        let &(start, begin, end) = self.places.get(after.checked_sub(1)?)?;
        const LARGEST_FUNCTION: u64 = 1 << 20;
        if address - start > LARGEST_FUNCTION {
            return None;
        }
        self.names.get(begin as usize..end as usize)?.split('.').next().filter(|name| !name.is_empty())
    }
}

/// The running kernel's functions when they were first asked for; empty if they cannot be read.
pub fn running() -> &'static Symbols {
    static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
    SYMBOLS.get_or_init(read)
}

/// The running kernel's functions with those of the modules that are loaded now: read again when modules came or went.
pub fn current() -> Arc<Symbols> {
    static READ: Mutex<Option<(Vec<String>, Arc<Symbols>)>> = Mutex::new(None);
    let modules = modules(&std::fs::read_to_string("/proc/modules").unwrap_or_default());
    let mut last = READ.lock().unwrap_or_else(|broken| broken.into_inner());
    match &*last {
        Some((of, symbols)) if *of == modules => Arc::clone(symbols),
        _ => {
            let symbols = Arc::new(read());
            *last = Some((modules, Arc::clone(&symbols)));
            symbols
        }
    }
}

fn read() -> Symbols {
    Symbols::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
}

/// Name, size and address of each line of `/proc/modules`; who uses a module is left out.
fn modules(text: &str) -> Vec<String> {
    let known = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        [0, 1, 5].map(|word| words.get(word).copied().unwrap_or_default()).join(" ")
    };
    text.lines().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "ffffffff81000000 T _text\nffffffff81000100 t udp_queue_rcv_one_skb.cold\n\
                        ffffffff81000080 D data\nffffffff81000200 W ip_rcv_core.isra.0 [module]\nbad line\n";

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let symbols = Symbols::parse(TEXT);
        assert_eq!(symbols.function(0xffff_ffff_8100_0090), Some("_text"));
        assert_eq!(symbols.function(0xffff_ffff_8100_0180), Some("udp_queue_rcv_one_skb"));
        assert_eq!(symbols.function(0xffff_ffff_8100_0201), Some("ip_rcv_core"));
        assert_eq!(symbols.function(0x1000), None);
        assert_eq!(symbols.function(u64::MAX), None, "too far behind the last function");
    }

    #[test]
    fn modules_are_the_same_whoever_uses_them() {
        let of = |used: &str| {
            modules(&format!("nf_tables 311296 {used} Live 0xffffffffc0a00000\nveth 45056 0 - Live 0x0\n"))
        };
        assert_eq!(of("3 nft_ct,nft_log,"), of("0 -"));
        assert_ne!(
            of("0 -"),
            modules("nf_tables 311296 0 - Live 0xffffffffc0b00000\nveth 45056 0 - Live 0x0\n")
        );
        assert_eq!(current().is_empty(), running().is_empty());
    }

    #[test]
    fn hidden_addresses_resolve_to_nothing() {
        assert_eq!(Symbols::parse("0000000000000000 T _text\n").function(5), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in ".{0,200}", address: u64) {
            let _ = Symbols::parse(&text).function(address);
        }
    }
}
