//! What is done with a frame: one piece of code per shape.
//!
//! Each edit begins with the question whether the frame is one that code knows ([`CALLS`] is not set); else `wire` makes the edit, by a
//! call behind the shape. Checksums follow as in [`wire::edit`], to the bit: the same sums, folded the same way (RFC 1624).

use super::{
    ASKED, ASKED_LIST, Emit, FLAGS, KEPT, LENGTH, MAPS, NETWORK, QUEUE, RECORDS, SET, SETS, START, TRANSPORT,
    key,
};
use crate::context::CALLS;
use crate::ir::End;
use crate::key::{ETH_DST, ETH_SRC};
use crate::key::{
    IP, METADATA, NETWORK as NETWORK_WORD, PORTS, SUMMARY, TAGGED, TCP, TUNNEL, TYPE_SHIFT, UDP,
};
use crate::record::{BodyShape, OPERANDS, ShapeStep};
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};
use flow::field::Field;

/// A step in its shape.
#[derive(Clone, Copy)]
struct Here {
    /// Offset of its operands in the record.
    at: i32,
    /// A later table, or a later edit, looks at the key or at the headers.
    later: bool,
    /// Where the next step begins.
    next: DynamicLabel,
}

/// An edit that `wire` makes when code cannot: where it stands, and what it is called from.
struct Stub {
    label: DynamicLabel,
    here: Here,
}

impl Emit<'_> {
    pub(super) fn shape(&mut self, number: usize, shape: &BodyShape) -> usize {
        let begin = self.piece(format!("shape {number}"));
        let mut at = 8 * OPERANDS as i32;
        let mut stubs = vec![];
        let mut may_be_asked = true;
        for (index, step) in shape.steps.iter().enumerate() {
            if step.is_edit() && may_be_asked {
                self.keep();
            }
            may_be_asked = !step.is_edit() && (may_be_asked || *step == ShapeStep::Output);
            let next = self.asm.new_dynamic_label();
            let here = Here { at, later: is_watched(&shape.steps[index + 1..], shape.end), next };
            self.step(*step, here, &mut stubs);
            dynasm!(self.asm ; .arch x64 ; =>next);
            at += 8 * step.operands() as i32;
        }
        self.end(shape.end);
        stubs.iter().for_each(|stub| self.stub(stub));
        begin
    }

    fn step(&mut self, step: ShapeStep, here: Here, stubs: &mut Vec<Stub>) {
        if step.is_edit() && step != ShapeStep::Call {
            let label = self.asm.new_dynamic_label();
            dynasm!(self.asm ; .arch x64 ; test DWORD [rbx + FLAGS], CALLS as i32 ; jnz =>label);
            stubs.push(Stub { label, here });
        }
        match step {
            ShapeStep::Output => self.output(here),
            ShapeStep::Queue => self.store(here.at, QUEUE),
            ShapeStep::Register(field) => self.register(field, here),
            ShapeStep::Address(field) => self.address(field, here),
            ShapeStep::Tag(_) => self.tag(here),
            ShapeStep::Ipv4(field) => self.ipv4(field, here),
            ShapeStep::Port(field) => self.port(field, here),
            ShapeStep::DecTtl => self.dec_ttl(here),
            ShapeStep::PushVlan => self.push_vlan(here),
            ShapeStep::PopVlan => self.pop_vlan(here),
            ShapeStep::Call => self.call_edit(here),
            ShapeStep::SetTo => self.store(here.at, SET),
            ShapeStep::SetMap => self.set_map(here.at),
        }
    }

    fn end(&mut self, end: End) {
        let (done, exit, jump) = (self.done, self.exit, self.jump);
        match end {
            End::Goto(table) => {
                let table = self.tables[&table];
                dynasm!(self.asm ; .arch x64 ; jmp =>table);
            }
            End::Done => dynasm!(self.asm ; .arch x64 ; jmp =>done),
            End::Exit(_) => dynasm!(self.asm ; .arch x64 ; jmp =>exit),
            End::Finish => dynasm!(self.asm
                ; .arch x64
                ; mov rax, [rbx + SET]
                ; mov rdx, [rbx + SETS]
                ; mov eax, [rdx + rax * 4]
                ; mov rdx, [rbx + RECORDS]
                ; mov ecx, eax
                ; shr ecx, 12
                ; and eax, 0xfff
                ; mov rcx, [rdx + rcx * 8]
                ; lea r15, [rcx + rax * 8]
                ; jmp =>jump
            ),
        }
    }

    /// Before an edit: outputs that were asked for and not kept get a copy of the frame as it is.
    fn keep(&mut self) {
        let call = self.source.calls.keep as i64;
        dynasm!(self.asm ; .arch x64 ; mov rax, [rbx + ASKED] ; cmp rax, [rbx + KEPT] ; je >kept);
        self.call(call);
        dynasm!(self.asm ; .arch x64 ; kept:);
    }

    /// Calls a function of Rust with the context, which gets to know where the frame is and says where it is afterwards.
    fn call(&mut self, address: i64) {
        dynasm!(self.asm
            ; .arch x64
            ; mov [rbx + START], r12
            ; mov [rbx + LENGTH], r13
            ; mov rdi, rbx
            ; mov rax, QWORD address
            ; call rax
            ; mov r12, [rbx + START]
            ; mov r13, [rbx + LENGTH]
        );
    }

    fn stub(&mut self, stub: &Stub) {
        let (label, next) = (stub.label, stub.here.next);
        dynasm!(self.asm ; .arch x64 ; =>label);
        self.call_edit(stub.here);
        dynasm!(self.asm ; .arch x64 ; jmp =>next);
    }

    /// The edit by `wire`, and a new key when something looks at it.
    fn call_edit(&mut self, here: Here) {
        let (exit, call) = (self.exit, self.source.calls.edit as i64);
        dynasm!(self.asm ; .arch x64 ; mov esi, [r15 + here.at]);
        self.call(call);
        dynasm!(self.asm ; .arch x64 ; test eax, eax ; jnz =>exit);
        self.parse_again(here);
    }

    /// A new key when something looks at it.
    fn parse_again(&mut self, here: Here) {
        if here.later {
            let parse = self.parse;
            dynasm!(self.asm ; .arch x64 ; call =>parse);
        }
    }

    fn output(&mut self, here: Here) {
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [rbx + ASKED]
            ; mov ecx, [r15 + here.at]
            ; mov rdx, rax
            ; shl rdx, 4
            ; mov [rbx + rdx + ASKED_LIST], ecx
            ; mov [rbx + rdx + ASKED_LIST + 4], r13d
            ; mov rcx, [rbx + QUEUE]
            ; mov [rbx + rdx + ASKED_LIST + 8], rcx
            ; inc rax
            ; mov [rbx + ASKED], rax
        );
    }

    /// An operand into the context.
    fn store(&mut self, at: i32, to: i32) {
        dynasm!(self.asm ; .arch x64 ; mov rax, [r15 + at] ; mov [rbx + to], rax);
    }

    fn set_map(&mut self, at: i32) {
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [r15 + at]
            ; add rax, [rbx + SET]
            ; mov rdx, [rbx + MAPS]
            ; mov eax, [rdx + rax * 4]
            ; mov [rbx + SET], rax
        );
    }

    fn register(&mut self, field: Field, here: Here) {
        let word = key(if field == Field::Metadata { METADATA } else { TUNNEL });
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [rbx + word]
            ; and rax, [r15 + here.at + 8]
            ; or rax, [r15 + here.at]
            ; mov [rbx + word], rax
        );
    }

    /// Goes on with the next step unless the summary has one of these bits. The summary is in rax then.
    fn unless_any(&mut self, bits: u64, here: Here) {
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [rbx + key(SUMMARY)]
            ; mov rcx, QWORD bits as i64
            ; test rax, rcx
            ; jz =>here.next
        );
    }

    fn address(&mut self, field: Field, here: Here) {
        let (at, word) = if field == Field::EthDst { (0, ETH_DST) } else { (6, ETH_SRC) };
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [r15 + here.at + 8]
            ; mov [r12 + at], eax
            ; mov rcx, rax
            ; shr rcx, 32
            ; mov [r12 + at + 4], cx
        );
        if here.later && self.source.needs.asks(word) {
            dynasm!(self.asm ; .arch x64 ; bswap rax ; shr rax, 16 ; mov [rbx + key(word)], rax);
        }
    }

    fn tag(&mut self, here: Here) {
        self.unless_any(TAGGED, here);
        dynasm!(self.asm
            ; .arch x64
            ; movzx eax, WORD [r12 + 14]
            ; and eax, [r15 + here.at + 16]
            ; or eax, [r15 + here.at + 8]
            ; mov [r12 + 14], ax
        );
        if here.later {
            let tagged = TAGGED as i32;
            dynasm!(self.asm
                ; .arch x64
                ; rol ax, 8
                ; movzx eax, ax
                ; shl eax, 16
                ; or eax, tagged
                ; mov ecx, [rbx + key(SUMMARY)]
                ; movzx ecx, cx
                ; or eax, ecx
                ; mov [rbx + key(SUMMARY)], eax
            );
        }
    }

    /// Folds the sum in ecx, of less than 2^18, into 16 bits. Changes edx.
    fn fold(&mut self) {
        for _ in 0..2 {
            dynasm!(self.asm ; .arch x64 ; mov edx, ecx ; shr edx, 16 ; movzx ecx, cx ; add ecx, edx);
        }
    }

    /// Lets the checksum at rsi + `at` follow the change in edi. Changes ecx and edx; leaves the new one in ecx.
    fn follow(&mut self, at: i32) {
        dynasm!(self.asm ; .arch x64 ; movzx ecx, WORD [rsi + at] ; rol cx, 8 ; xor ecx, 0xffff ; add ecx, edi);
        self.fold();
        dynasm!(self.asm ; .arch x64 ; xor ecx, 0xffff);
    }

    fn store_checksum(&mut self, at: i32) {
        dynasm!(self.asm ; .arch x64 ; rol cx, 8 ; mov [rsi + at], cx);
    }

    /// Lets the checksum of TCP or UDP follow the change in edi; the summary is in rax.
    fn follow_transport(&mut self) {
        let (tcp, udp) = (TCP.trailing_zeros() as i8, UDP.trailing_zeros() as i8);
        dynasm!(self.asm ; .arch x64 ; mov rsi, [rbx + TRANSPORT] ; bt rax, tcp ; jnc >other);
        self.follow(16);
        self.store_checksum(16);
        dynasm!(self.asm
            ; .arch x64
            ; jmp >followed
            ; other:
            ; bt rax, udp
            ; jnc >followed
            // RFC 768: none is none, and a sum of zero is sent as ones.
            ; cmp WORD [rsi + 6], 0
            ; je >followed
        );
        self.follow(6);
        dynasm!(self.asm ; .arch x64 ; mov edx, 0xffff ; test ecx, ecx ; cmovz ecx, edx);
        self.store_checksum(6);
        dynasm!(self.asm ; .arch x64 ; followed:);
    }

    fn ipv4(&mut self, field: Field, here: Here) {
        let at = if field == Field::Ipv4Src { 12 } else { 16 };
        let (mask, value) = ((IP | 0xffff << TYPE_SHIFT) as i64, (IP | 0x800 << TYPE_SHIFT) as i64);
        dynasm!(self.asm
            ; .arch x64
            ; mov rax, [rbx + key(SUMMARY)]
            ; mov rcx, QWORD mask
            ; mov rdx, QWORD value
            ; and rcx, rax
            ; cmp rcx, rdx
            ; jne =>here.next
            ; mov rsi, [rbx + NETWORK]
            ; mov r8d, [r15 + here.at + 8]
            ; mov ecx, [rsi + at]
            ; mov [rsi + at], r8d
            // The folded old words, turned; and the folded new ones.
            ; bswap ecx
            ; mov edx, ecx
            ; shr edx, 16
            ; movzx ecx, cx
            ; add ecx, edx
        );
        self.fold();
        dynasm!(self.asm ; .arch x64 ; xor ecx, 0xffff ; add ecx, [r15 + here.at + 12] ; mov edi, ecx);
        self.follow(10);
        self.store_checksum(10);
        self.follow_transport();
        if here.later && self.source.needs.asks(NETWORK_WORD) {
            let half = key(NETWORK_WORD) + if field == Field::Ipv4Src { 4 } else { 0 };
            dynasm!(self.asm ; .arch x64 ; bswap r8d ; mov [rbx + half], r8d);
        }
    }

    fn port(&mut self, field: Field, here: Here) {
        let bit = if matches!(field, Field::TcpSrc | Field::TcpDst) { TCP } else { UDP };
        let is_source = matches!(field, Field::TcpSrc | Field::UdpSrc);
        let at = if is_source { 0 } else { 2 };
        self.unless_any(bit, here);
        dynasm!(self.asm
            ; .arch x64
            ; mov rsi, [rbx + TRANSPORT]
            ; movzx ecx, WORD [rsi + at]
            ; mov r8d, [r15 + here.at + 8]
            ; mov [rsi + at], r8w
            ; rol cx, 8
            ; xor ecx, 0xffff
            ; add ecx, [r15 + here.at + 12]
            ; mov edi, ecx
        );
        self.follow_transport();
        if here.later && self.source.needs.asks(PORTS) {
            let half = key(PORTS) + if is_source { 2 } else { 0 };
            dynasm!(self.asm ; .arch x64 ; rol r8w, 8 ; mov [rbx + half], r8w);
        }
    }

    fn dec_ttl(&mut self, here: Here) {
        let exit = self.exit;
        self.unless_any(IP, here);
        dynasm!(self.asm
            ; .arch x64
            ; mov rsi, [rbx + NETWORK]
            ; shr rax, TYPE_SHIFT as i8
            ; cmp ax, 0x800
            ; je >v4
            ; cmp BYTE [rsi + 7], 1
            ; jbe =>exit
            ; dec BYTE [rsi + 7]
            ; jmp =>here.next
            ; v4:
            ; cmp BYTE [rsi + 8], 1
            ; jbe =>exit
            ; dec BYTE [rsi + 8]
            // Whatever the TTL was: the complement of the old word and the new one are 0xfeff together.
            ; mov edi, 0xfeff
        );
        self.follow(10);
        self.store_checksum(10);
    }

    fn push_vlan(&mut self, here: Here) {
        dynasm!(self.asm
            ; .arch x64
            ; xor eax, eax
            ; test DWORD [rbx + key(SUMMARY)], TAGGED as i32
            ; jz >bare
            // The drop-eligible bit is not copied.
            ; movzx eax, WORD [r12 + 14]
            ; and eax, 0xffef
            ; bare:
            ; mov rcx, [r12]
            ; mov edx, [r12 + 8]
            ; sub r12, 4
            ; add r13, 4
            ; mov [r12], rcx
            ; mov [r12 + 8], edx
            ; mov rcx, [r15 + here.at + 8]
            ; mov [r12 + 12], cx
            ; mov [r12 + 14], ax
        );
        if here.later {
            dynasm!(self.asm ; .arch x64 ; or DWORD [rbx + key(SUMMARY)], TAGGED as i32);
        }
    }

    fn pop_vlan(&mut self, here: Here) {
        let popped = self.asm.new_dynamic_label();
        self.unless_any(TAGGED, here);
        dynasm!(self.asm
            ; .arch x64
            ; lea rax, [r13 - 60]
            ; cmp rax, 3
            ; jbe >short
            ; mov rcx, [r12]
            ; mov edx, [r12 + 8]
            ; add r12, 4
            ; sub r13, 4
            ; mov [r12], rcx
            ; mov [r12 + 8], edx
            ; jmp =>popped
            // 60 to 63 bytes would be too short: what is behind the tag moves forward, and zeros follow (IEEE 802.3 section 3.2.8).
            ; short:
            ; mov rdi, [r12 + r13 - 8]
        );
        for from in [16, 24, 32, 40, 48] {
            dynasm!(self.asm ; .arch x64 ; mov rcx, [r12 + from] ; mov [r12 + from - 4], rcx);
        }
        dynasm!(self.asm
            ; .arch x64
            ; mov DWORD [r12 + 56], 0
            ; mov [r12 + r13 - 12], rdi
            ; mov r13d, 60
            ; =>popped
        );
        self.parse_again(here);
    }
}

/// Whether anything behind a step looks at the key or at the headers.
fn is_watched(rest: &[ShapeStep], end: End) -> bool {
    rest.iter().any(|step| step.is_edit()) || matches!(end, End::Goto(_) | End::Finish)
}
