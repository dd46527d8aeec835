//! ICMP echo: flood (the next request when the reply came or after 10 ms, as `ping -f`) or paced.
//!
//! The kernel of the other end answers; the receiving end of the test only exists, so that its node is observed like
//! that of every other test.

use crate::protocol::message::Prepared;
use crate::protocol::setup::Setup;
use crate::traffic::ask::{self, Asker};
use crate::traffic::datagram::Form;
use crate::traffic::end::{End, Ready, prepared};
use crate::traffic::schedule::Ending;
use linux::sys::icmp::{EchoSocket, Method};
use linux::sys::socket::{self, Direction};
use record::Problem;
use record::traffic::{EndReport, Settings};
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use wire::message::Flags;

/// A flood goes on without a reply after so long. The kernel rounds up to a jiffy.
pub const FLOOD_TIMEOUT: Duration = Duration::from_millis(10);

/// Why there is no socket to an address, and what helps.
fn refused(address: IpAddr, error: &io::Error) -> Problem {
    let help = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "give it CAP_NET_RAW, or allow ping sockets with sysctl net.ipv4.ping_group_range=\"0 2147483647\""
        }
        _ => "check the address and the routes of the sending node",
    };
    Problem::host(format!("cannot open an ICMP socket to {address}: {error}")).help(help)
}

/// Opens the socket: a ping socket if the host allows it, else a raw one.
pub fn sender(setup: &Setup) -> Ready {
    let spec = setup.spec.clone();
    let identifier = (std::process::id() as u16) ^ (u16::from(setup.token) << 8);
    let socket =
        EchoSocket::open(setup.address, identifier).map_err(|error| refused(setup.address, &error))?;
    for (direction, bytes) in [(Direction::Send, spec.send_buffer), (Direction::Receive, spec.receive_buffer)]
    {
        let _ = bytes.map(|bytes| socket::set_buffer(&socket, direction, bytes));
    }
    let local = socket.local().map(|address| address.to_string()).unwrap_or_default();
    let method = match socket.method {
        Method::PingSocket => format!("ICMP ping socket, id {}", socket.identifier),
        Method::Raw => format!("ICMP raw socket, id {}", socket.identifier),
    };
    let prepared = prepared(&socket, Err(io::ErrorKind::NotConnected.into()), None, vec![]);
    let settings = Settings { local, remote: setup.address.to_string(), method, ..prepared.settings };
    let size = spec.size as usize;
    let prepared = Prepared { ports: vec![], icmp_id: Some(socket.identifier), settings };
    let asker = Asker {
        carrier: socket,
        form: Form {
            stream: setup.token,
            flags: Flags::REQUEST,
            size,
            merged: 1,
            buffers: ask::buffers(&spec),
        },
        // The kernel sends the data back as it came, flags and all.
        reply_flags: Flags::REQUEST,
        reply_size: size,
        timeout: FLOOD_TIMEOUT,
        counts_late: false,
        spec,
    };
    Ok((prepared, Box::new(asker)))
}

/// The end that is only there.
struct Idle;

/// Opens nothing.
pub fn receiver(_setup: &Setup) -> Ready {
    let settings = Settings { method: "the kernel answers".to_owned(), ..Settings::default() };
    Ok((Prepared { settings, ..Prepared::default() }, Box::new(Idle)))
}

impl End for Idle {
    fn run(&mut self, _stop: &Ending) -> EndReport {
        EndReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_is_missing_needs_no_permission() {
        let told =
            |number| refused(IpAddr::from([10, 0, 0, 9]), &io::Error::from_raw_os_error(number)).to_string();
        const EPERM: i32 = 1;
        const ENETUNREACH: i32 = 101;
        assert!(told(EPERM).contains("CAP_NET_RAW"), "{}", told(EPERM));
        assert!(told(ENETUNREACH).ends_with("check the address and the routes of the sending node"));
    }
}
