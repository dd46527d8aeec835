//! The walk over the headers.
//!
//! What [`wire::headers::Headers`] does, for the frames that are usual: Ethernet with up to two tags, IPv4, IPv6 without extension
//! headers, ARP, MPLS. All others are filled in by `wire` itself, through a call; a chain of extension headers costs what it costs there,
//! and no more.

use super::{Emit, LENGTH, NETWORK, START, TRANSPORT, key};
use crate::key::{
    ARP, ARP_OP, ETH, ETH_DST, ETH_SRC, FRAGMENT, ICMP4, ICMP6, IP, IPV6_DST, IPV6_REST, IPV6_SRC, MPLS,
    NETWORK as NETWORK_WORD, PORTS, PROTO, SCTP, SUMMARY, TAGGED, TCP, UDP,
};
use crate::needs::Depth;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};

/// Next headers that are extensions, or have a bit of their own in ipv6_exthdr.
const EXTENSIONS: i64 = 1 | 1 << 43 | 1 << 44 | 1 << 50 | 1 << 51 | 1 << 59 | 1 << 60;

/// Where the walk may go.
#[derive(Clone, Copy)]
struct Ways {
    /// All was found.
    done: DynamicLabel,
    /// `wire` does it.
    slow: DynamicLabel,
}

impl Emit<'_> {
    /// A subroutine. In rdx it collects the summary; rsi is where it stands, rdi the end of what is there.
    pub(super) fn parse(&mut self) {
        self.piece("parse");
        let parse = self.parse;
        let ways = Ways { done: self.asm.new_dynamic_label(), slow: self.asm.new_dynamic_label() };
        dynasm!(self.asm ; .arch x64 ; =>parse ; cmp r13, 14 ; jb =>ways.slow);
        self.addresses();
        self.tags(ways);
        if self.source.needs.depth >= Depth::Network {
            self.network(ways);
        }
        let call = self.source.calls.parse as i64;
        dynasm!(self.asm
            ; .arch x64
            ; =>ways.done
            ; mov [rbx + key(SUMMARY)], rdx
            ; ret
            ; =>ways.slow
            ; mov [rbx + START], r12
            ; mov [rbx + LENGTH], r13
            ; mov rdi, rbx
            ; sub rsp, 8
            ; mov rax, QWORD call
            ; call rax
            ; add rsp, 8
            ; ret
        );
    }

    fn addresses(&mut self) {
        for (word, at) in [(ETH_DST, 0), (ETH_SRC, 6)] {
            if self.source.needs.asks(word) {
                // Eight bytes of which the first six count; there are at least 14.
                self.six_bytes_of_frame(word, at);
            }
        }
    }

    fn six_bytes_of_frame(&mut self, word: u8, at: i32) {
        dynasm!(self.asm ; .arch x64 ; mov rax, [r12 + at] ; bswap rax ; shr rax, 16 ; mov [rbx + key(word)], rax);
    }

    /// Up to two tags; behind it eax is the ethertype.
    fn tags(&mut self, ways: Ways) {
        let (eth, tagged) = (ETH as i64, TAGGED as i32);
        let typed = self.asm.new_dynamic_label();
        dynasm!(self.asm
            ; .arch x64
            ; lea rdi, [r12 + r13]
            ; lea rsi, [r12 + 14]
            ; movzx eax, WORD [r12 + 12]
            ; rol ax, 8
            ; mov rdx, QWORD eth
            ; cmp eax, 0x8100
            ; je >tag
            ; cmp eax, 0x88a8
            ; jne =>typed
            ; tag:
            ; lea rcx, [rsi + 4]
            ; cmp rcx, rdi
            ; ja =>ways.slow
            ; movzx ecx, WORD [rsi]
            ; rol cx, 8
            ; shl ecx, 16
            ; or ecx, tagged
            ; or rdx, rcx
            ; movzx eax, WORD [rsi + 2]
            ; rol ax, 8
            ; add rsi, 4
            ; cmp eax, 0x8100
            ; je >second
            ; cmp eax, 0x88a8
            ; jne =>typed
            ; second:
            ; lea rcx, [rsi + 4]
            ; cmp rcx, rdi
            ; ja =>ways.slow
            ; movzx eax, WORD [rsi + 2]
            ; rol ax, 8
            ; add rsi, 4
            ; cmp eax, 0x8100
            ; je =>ways.slow
            ; cmp eax, 0x88a8
            ; je =>ways.slow
            ; =>typed
            ; cmp eax, 0x600
            ; jb =>ways.slow
            ; mov rcx, rax
            ; shl rcx, 32
            ; or rdx, rcx
            ; mov [rbx + NETWORK], rsi
        );
    }

    fn network(&mut self, ways: Ways) {
        let mut label = || self.asm.new_dynamic_label();
        let (v4, v6, arp, mpls) = (label(), label(), label(), label());
        dynasm!(self.asm
            ; .arch x64
            ; cmp eax, 0x800
            ; je =>v4
            ; cmp eax, 0x86dd
            ; je =>v6
            ; cmp eax, 0x806
            ; je =>arp
            ; cmp eax, 0x8847
            ; je =>mpls
            ; cmp eax, 0x8848
            ; je =>mpls
            ; cmp eax, 0x88e7
            ; je =>ways.slow
            ; jmp =>ways.done
            ; =>v4
        );
        self.v4(ways);
        dynasm!(self.asm ; .arch x64 ; =>v6);
        self.v6(ways);
        dynasm!(self.asm ; .arch x64 ; =>arp);
        self.arp(ways);
        dynasm!(self.asm ; .arch x64 ; =>mpls);
        self.mpls(ways);
    }

    /// IPv4, with options.
    fn v4(&mut self, ways: Ways) {
        self.is_here(20, ways.done);
        dynasm!(self.asm
            ; .arch x64
            ; movzx eax, BYTE [rsi]
            ; mov ecx, eax
            ; shr ecx, 4
            ; cmp ecx, 4
            ; jne =>ways.done
            ; and eax, 15
            ; cmp eax, 5
            ; jb =>ways.done
            ; shl eax, 2
            ; lea r9, [rsi + rax]
            ; cmp r9, rdi
            ; ja =>ways.done
            ; movzx ecx, WORD [rsi + 2]
            ; rol cx, 8
            ; test ecx, ecx
            ; jz >whole
            ; cmp ecx, eax
            ; jb =>ways.done
            ; lea r10, [rsi + rcx]
            ; cmp r10, rdi
            ; cmovb rdi, r10
            ; whole:
            ; mov [rbx + TRANSPORT], r9
            ; movzx ecx, BYTE [rsi + 1]
            ; movzx eax, BYTE [rsi + 9]
        );
        self.summary_of_ip();
        if self.source.needs.asks(NETWORK_WORD) {
            dynasm!(self.asm ; .arch x64 ; mov rcx, [rsi + 12] ; bswap rcx ; mov [rbx + key(NETWORK_WORD)], rcx);
        }
        let fragment = FRAGMENT as i64;
        dynasm!(self.asm
            ; .arch x64
            ; movzx ecx, WORD [rsi + 6]
            ; rol cx, 8
            ; test ecx, 0x3fff
            ; jz >all
            ; mov r8, QWORD fragment
            ; or rdx, r8
            ; test ecx, 0x1fff
            ; jnz =>ways.done
            ; all:
        );
        self.transport(1, ICMP4, ways);
    }

    /// IPv6 without extension headers.
    fn v6(&mut self, ways: Ways) {
        self.is_here(40, ways.done);
        dynasm!(self.asm
            ; .arch x64
            ; lea r9, [rsi + 40]
            ; movzx ecx, BYTE [rsi]
            ; shr ecx, 4
            ; cmp ecx, 6
            ; jne =>ways.done
            ; movzx eax, BYTE [rsi + 6]
            ; cmp eax, 60
            ; ja >plain
            ; mov r8, QWORD EXTENSIONS
            ; bt r8, rax
            ; jc =>ways.slow
            ; plain:
            ; movzx ecx, WORD [rsi + 4]
            ; rol cx, 8
            ; test ecx, ecx
            ; jz >whole
            ; lea r10, [r9 + rcx]
            ; cmp r10, rdi
            ; cmovb rdi, r10
            ; whole:
            ; mov [rbx + TRANSPORT], r9
            ; movzx ecx, WORD [rsi]
            ; rol cx, 8
            ; shr ecx, 4
            ; and ecx, 0xff
        );
        self.summary_of_ip();
        for (word, at) in [(IPV6_SRC, 8), (IPV6_SRC + 1, 16), (IPV6_DST, 24), (IPV6_DST + 1, 32)] {
            if self.source.needs.asks(word) {
                dynasm!(self.asm ; .arch x64 ; mov rcx, [rsi + at] ; bswap rcx ; mov [rbx + key(word)], rcx);
            }
        }
        if self.source.needs.asks(IPV6_REST) {
            let at = key(IPV6_REST);
            dynasm!(self.asm ; .arch x64 ; mov ecx, [rsi] ; bswap ecx ; and ecx, 0xfffff ; mov [rbx + at], rcx);
        }
        self.transport(58, ICMP6, ways);
    }

    /// Adds the protocol in eax and the traffic class in ecx to the summary.
    fn summary_of_ip(&mut self) {
        let bits = (IP | PROTO) as i64;
        dynasm!(self.asm
            ; .arch x64
            ; or rdx, rcx
            ; mov r8, QWORD bits
            ; or rdx, r8
            ; mov ecx, eax
            ; shl ecx, 8
            ; or rdx, rcx
        );
    }

    /// The transport at r9 of the protocol in eax; `icmp` is the number of the family's own ICMP.
    fn transport(&mut self, icmp: i32, icmp_bit: u64, ways: Ways) {
        if self.source.needs.depth < Depth::Transport {
            dynasm!(self.asm ; .arch x64 ; jmp =>ways.done);
            return;
        }
        for (protocol, length, bit) in [(6, 20, TCP), (17, 8, UDP), (132, 12, SCTP)] {
            let other = self.asm.new_dynamic_label();
            dynasm!(self.asm ; .arch x64 ; cmp eax, protocol ; jne =>other);
            self.is_transport_here(length, bit, ways);
            if self.source.needs.asks(PORTS) {
                dynasm!(self.asm ; .arch x64 ; mov ecx, [r9] ; bswap ecx ; mov [rbx + key(PORTS)], ecx);
            }
            dynasm!(self.asm ; .arch x64 ; jmp =>ways.done ; =>other);
        }
        dynasm!(self.asm ; .arch x64 ; cmp eax, icmp ; jne =>ways.done);
        self.is_transport_here(4, icmp_bit, ways);
        if self.source.needs.depth >= Depth::Neighbour && icmp == 58 {
            dynasm!(self.asm
                ; .arch x64
                ; movzx ecx, BYTE [r9]
                ; sub ecx, 135
                ; cmp ecx, 1
                ; jbe =>ways.slow
            );
        }
        if self.source.needs.asks(PORTS) {
            dynasm!(self.asm
                ; .arch x64
                ; movzx ecx, BYTE [r9]
                ; shl ecx, 16
                ; movzx r8d, BYTE [r9 + 1]
                ; or ecx, r8d
                ; mov [rbx + key(PORTS)], ecx
            );
        }
        dynasm!(self.asm ; .arch x64 ; jmp =>ways.done);
    }

    fn is_transport_here(&mut self, length: i32, bit: u64, ways: Ways) {
        dynasm!(self.asm
            ; .arch x64
            ; lea rcx, [r9 + length]
            ; cmp rcx, rdi
            ; ja =>ways.done
            ; mov r8, QWORD bit as i64
            ; or rdx, r8
        );
    }

    fn is_here(&mut self, length: i32, otherwise: DynamicLabel) {
        dynasm!(self.asm ; .arch x64 ; lea rcx, [rsi + length] ; cmp rcx, rdi ; ja =>otherwise);
    }

    fn arp(&mut self, ways: Ways) {
        self.is_here(8, ways.done);
        self.set_bit(ARP_OP);
        if self.source.needs.asks(PORTS) {
            let at = key(PORTS);
            dynasm!(self.asm
                ; .arch x64 ; movzx ecx, WORD [rsi + 6] ; rol cx, 8 ; shl ecx, 16 ; mov [rbx + at], ecx);
        }
        self.is_here(28, ways.done);
        // IPv4; addresses of 6 and 4 bytes.
        dynasm!(self.asm
            ; .arch x64
            ; cmp WORD [rsi + 2], 0x0008
            ; jne =>ways.done
            ; cmp WORD [rsi + 4], 0x0406
            ; jne =>ways.done
        );
        self.set_bit(ARP);
        if self.source.needs.asks(NETWORK_WORD) {
            dynasm!(self.asm
                ; .arch x64
                ; mov ecx, [rsi + 14]
                ; bswap ecx
                ; shl rcx, 32
                ; mov r8d, [rsi + 24]
                ; bswap r8d
                ; or rcx, r8
                ; mov [rbx + key(NETWORK_WORD)], rcx
            );
        }
        for (word, at) in [(IPV6_SRC + 1, 8), (IPV6_DST + 1, 18)] {
            if self.source.needs.asks(word) {
                dynasm!(self.asm
                    ; .arch x64 ; mov rcx, [rsi + at] ; bswap rcx ; shr rcx, 16 ; mov [rbx + key(word)], rcx);
            }
        }
        dynasm!(self.asm ; .arch x64 ; jmp =>ways.done);
    }

    fn mpls(&mut self, ways: Ways) {
        self.is_here(4, ways.done);
        self.set_bit(MPLS);
        if self.source.needs.asks(NETWORK_WORD) {
            dynasm!(self.asm ; .arch x64 ; mov ecx, [rsi] ; bswap ecx ; mov [rbx + key(NETWORK_WORD)], rcx);
        }
    }

    fn set_bit(&mut self, bit: u64) {
        dynasm!(self.asm ; .arch x64 ; mov rcx, QWORD bit as i64 ; or rdx, rcx);
    }
}
