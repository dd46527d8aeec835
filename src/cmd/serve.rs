//! `pathlab serve`: answers tests from other machines, one test at a time, without privileges.
//!
//! Every control connection has a thread; the data sockets are opened by each test at ports of their own.

use crate::output::{Notices, Output, object};
use clap::Args;
use experiment::hosts::remote::{PORT, refuse_link_local};
use linux::sys::process;
use linux::sys::socket::{self, Direction};
use load::conversation::agent::{self, TestLock};
use load::conversation::facts::Host;
use load::conversation::knobs::OpenKnobs;
use record::{Problem, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Control connections at the same time.
const MOST: usize = 64;

/// How long a call of accept waits at a time.
const TICK: Duration = Duration::from_millis(500);

/// How often it is looked whether the only connection has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Flags of `pathlab serve`.
#[derive(Args)]
pub struct ServeArgs {
    /// Port of the control connection; 0 lets the system choose.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Listen at this address only (all addresses, v4 and v6, by default).
    #[arg(long, value_name = "ADDR")]
    bind: Option<String>,
    /// End after the first control connection.
    #[arg(long)]
    once: bool,
    /// Tell whoever tests the counters of this host, and of these namespaces (a name of 'ip netns', a path, pid:N): its interfaces,
    /// sockets, filters and drops, and what the doctor judges. With that 'pathlab test' has a ledger, and 'test --doctor' sees both ends.
    #[arg(long, value_name = "NAMESPACE", num_args = 0..)]
    observe: Option<Vec<String>>,
    /// Let whoever reaches the port change settings of this host: for as long as its connection lasts, or until 'pathlab tune undo'. With that
    /// 'pathlab prove --to' tries knobs of this host, too (docs/hosts.md).
    #[arg(long, requires = "observe")]
    tune: bool,
}

/// Listens and serves.
pub fn run(args: ServeArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let namespaces = args.observe.as_ref().map(|names| super::namespaces::with_own("--observe", names));
    let knobs = args.tune.then_some(experiment::change::for_a_controller as OpenKnobs);
    let host = namespaces.transpose()?.map(experiment::doctor::host);
    let host = host.map(|host| Arc::new(Host { knobs, ..host }));
    let listener = listen(&args)?;
    // An interrupt that comes just before a call of accept is seen after this time.
    let wait = socket::set_timeout(&listener, Direction::Receive, Some(TICK));
    wait.map_err(|e| Problem::host(format!("cannot set how long to wait for connections: {e}")))?;
    if let Ok(address) = listener.local_addr() {
        let document = object! { schema: "pathlab/serve/1", listening: address.to_string() };
        output.line(&document, |_| format!("serving tests at {address}"))?;
    }
    // Each control connection has one of these.
    let (turns, mut open) = (TestLock::default(), Connections::default());
    loop {
        if process::interrupted() {
            return Err(interrupted());
        }
        open.forget_ended();
        let (stream, peer) = match listener.accept() {
            // A socket for both families has IPv4 addresses as ::ffff:10.0.0.1.
            Ok((stream, peer)) => (stream, SocketAddr::new(peer.ip().to_canonical(), peer.port())),
            Err(error) if socket::is_passing(&error) => continue,
            Err(error) => return Err(Problem::host(format!("cannot accept connections: {error}"))),
        };
        if open.0.len() >= MOST {
            output.note(&format!("{peer}: refused, {MOST} control connections are open"));
            continue;
        }
        let (turns, host) = (turns.clone(), host.clone());
        let serve = move |stream| serve(stream, peer, &turns, host);
        if args.once {
            open.serve(stream, serve);
            return open.ended();
        }
        open.serve(stream, move |stream| {
            if let Err(problem) = serve(stream) {
                crate::output::tell(&format!("pathlab: {problem}"));
            }
            Ok(())
        });
    }
}

fn interrupted() -> Problem {
    Problem::measured("interrupted: no further tests are answered")
}

/// Control connections that are served, each by a thread. They end with this value: what one holds of this host is put back before the program ends.
#[derive(Default)]
struct Connections(Vec<(TcpStream, JoinHandle<Result<()>>)>);

impl Connections {
    /// Closes those that have ended: the peer waits for that, and our handle of it holds it open.
    fn forget_ended(&mut self) {
        self.0.retain(|(_, thread)| !thread.is_finished());
    }

    /// One more; one of which there can be no second handle is closed at once.
    fn serve(&mut self, stream: TcpStream, work: impl FnOnce(TcpStream) -> Result<()> + Send + 'static) {
        if let Ok(handle) = stream.try_clone() {
            self.0.push((handle, std::thread::spawn(move || work(stream))));
        }
    }

    /// Waits until all have ended, or for an interrupt.
    fn ended(mut self) -> Result<()> {
        while self.0.iter().any(|(_, thread)| !thread.is_finished()) {
            if process::interrupted() {
                return Err(interrupted());
            }
            std::thread::sleep(LOOK);
        }
        let bug = || Problem::host("a control connection failed; this is a bug in pathlab");
        self.0.drain(..).try_for_each(|(_, thread)| thread.join().unwrap_or_else(|_| Err(bug())))
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for (stream, _) in &self.0 {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for (_, thread) in self.0.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, peer: SocketAddr, turns: &TestLock, host: Option<Arc<Host>>) -> Result<()> {
    let _ = stream.set_nodelay(true);
    // A connection inherits the listener's time-out.
    let _ = stream.set_read_timeout(None);
    agent::serve_in_turn(stream, &peer.to_string(), turns, host)
}

/// An address to listen at.
fn address(text: &str) -> Result<IpAddr> {
    refuse_link_local(text)?;
    text.parse().map_err(|_| Problem::input(format!("'{text}' is no address of IPv4 or IPv6")).at("--bind"))
}

/// One socket for both families where the host has both.
fn listen(args: &ServeArgs) -> Result<TcpListener> {
    let at = |address: IpAddr| TcpListener::bind(SocketAddr::new(address, args.port));
    let listener = match &args.bind {
        Some(text) => at(address(text)?),
        None => at(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| at(Ipv4Addr::UNSPECIFIED.into())),
    };
    listener.map_err(|error| {
        Problem::host(format!("cannot listen at port {}: {error}", args.port))
            .help("choose another with --port, or end what uses it")
    })
}
