//! TLS around a TCP connection: both ends show a certificate, and neither falls back to plain text.
//!
//! **What.** [`Credentials::load`] reads a private key, a certificate and the certificate of an authority; [`Tls`] is a socket with a
//! session of rustls in front, which reads and writes like a socket that never blocks.
//!
//! **Why.** OpenFlow 1.3.5 ("Encryption") asks for connections that both ends authenticate, by certificates that a private authority
//! of the site signed. So the authority is the identity: an end with a certificate that it signed belongs to the site, under whatever name
//! and address, as in Open vSwitch. The handshake is part of reading and writing, because the loop of the switch has one thread.
//!
//! **Price.** A handshake is a millisecond of the thread that talks with everybody. The files are read once, at the start. An end of the
//! connection without TLS's goodbye counts as an end: messages have a length of their own, so one that was cut off shows.

use crate::transport::Transport;
use record::{Problem, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    Error, PeerIncompatible, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where key and certificates are, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// The private key of this end.
    pub private_key: Option<PathBuf>,
    /// The certificate of this end, followed by the ones between it and the authority.
    pub certificate: Option<PathBuf>,
    /// The authorities that sign the certificates of the other ends.
    pub ca_cert: Option<PathBuf>,
}

/// What this end shows, and which certificates it accepts.
#[derive(Debug, Clone)]
pub struct Credentials {
    calls: Arc<ClientConfig>,
    takes: Arc<ServerConfig>,
}

impl TlsFiles {
    /// The credentials, when they are needed.
    ///
    /// # Errors
    /// As [`Credentials::load`].
    pub fn load_if(&self, is_needed: bool) -> Result<Option<Credentials>> {
        is_needed.then(|| Credentials::load(self)).transpose()
    }
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// Input: one was not said, cannot be read or has not what belongs into it; the key is not the certificate's.
    pub fn load(files: &TlsFiles) -> Result<Credentials> {
        let key_file = said(&files.private_key, "a private key", "private-key")?;
        let own_file = said(&files.certificate, "a certificate", "certificate")?;
        let ca_file = said(&files.ca_cert, "the certificate of an authority", "ca-cert")?;
        let key = PrivateKeyDer::from_pem_slice(&content(key_file)?)
            .map_err(|e| no(&e, "private key", key_file))?;
        let own = certificates(own_file)?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(ca_file)? {
            roots.add(authority).map_err(|e| {
                Problem::input(format!("a certificate in it cannot be used: {}", sentence(&e)))
                    .at(at(ca_file))
            })?;
        }
        let provider = Arc::new(ring::default_provider());
        let of_pair = |e: Error| {
            let what = match e {
                Error::InconsistentKeys(_) => "this is not the private key of the certificate".to_owned(),
                other => format!("key and certificate cannot be used: {}", sentence(&other)),
            };
            Problem::input(what).at(format!("{} and {}", key_file.display(), own_file.display()))
        };
        let roots = Arc::new(roots);
        let callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|e| Problem::input(format!("the authority cannot be used: {e}")).at(at(ca_file)))?;
        let takes = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(of_pair)?
            .with_client_cert_verifier(callers.clone())
            .with_single_cert(own.clone(), key.clone_key())
            .map_err(of_pair)?;
        let calls = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(of_pair)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OfOurAuthority { roots, provider, callers }))
            .with_client_auth_cert(own, key)
            .map_err(of_pair)?;
        Ok(Credentials { calls: Arc::new(calls), takes: Arc::new(takes) })
    }
}

fn at(file: &Path) -> String {
    file.display().to_string()
}

fn said<'a>(file: &'a Option<PathBuf>, what: &str, flag: &str) -> Result<&'a Path> {
    file.as_deref().ok_or_else(|| {
        Problem::input(format!("TLS needs {what}"))
            .help(format!("--{flag} FILE, or '{flag} FILE' in the file of a switch; TLS needs all of private-key, certificate and ca-cert"))
    })
}

fn content(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|e| Problem::input(format!("cannot read it: {e}")).at(at(file)))
}

fn no(e: &pem::Error, what: &str, file: &Path) -> Problem {
    let why = match e {
        pem::Error::NoItemsFound => format!("there is no {what} in it"),
        other => format!("its {what} cannot be read: {other}"),
    };
    Problem::input(why).at(at(file)).help("it has to be PEM ('-----BEGIN …'), without a passphrase")
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(&content(file)?).collect::<std::result::Result<Vec<_>, _>>();
    let found = found.map_err(|e| no(&e, "certificate", file))?;
    if found.is_empty() {
        return Err(no(&pem::Error::NoItemsFound, "certificate", file));
    }
    Ok(found)
}

/// Accepts every certificate that our authority signed, whatever its name: see the essay above.
#[derive(Debug)]
struct OfOurAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    /// Signatures are verified as those of callers.
    callers: Arc<dyn ClientCertVerifier>,
}

impl ServerCertVerifier for OfOurAuthority {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        let end = ParsedCertificate::try_from(end)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&end, &self.roots, between, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.callers.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.callers.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.callers.supported_verify_schemes()
    }
}

/// A TCP connection with TLS on it. The socket does not block, so neither does this.
#[derive(Debug)]
pub struct Tls {
    socket: TcpStream,
    session: Connection,
    /// Bytes that were deciphered and not read yet: poll does not report them.
    held: usize,
    /// Why it broke, when there was something to read before that.
    later: Option<io::Error>,
    is_broken: bool,
}

impl Tls {
    /// The end that calls.
    ///
    /// # Errors
    /// What rustls says of the configuration, as words.
    pub fn call(socket: TcpStream, credentials: &Credentials) -> io::Result<Tls> {
        let peer = socket.peer_addr()?.ip();
        // The address is only for the session's cache; with an address no name is sent to the other end.
        let session = ClientConnection::new(credentials.calls.clone(), ServerName::from(peer));
        Ok(Tls::new(socket, Connection::Client(session.map_err(|e| broken(&e))?)))
    }

    /// The end that was called.
    ///
    /// # Errors
    /// As [`Tls::call`].
    pub fn take(socket: TcpStream, credentials: &Credentials) -> io::Result<Tls> {
        let session = ServerConnection::new(credentials.takes.clone()).map_err(|e| broken(&e))?;
        Ok(Tls::new(socket, Connection::Server(session)))
    }

    fn new(socket: TcpStream, session: Connection) -> Tls {
        Tls { socket, session, held: 0, later: None, is_broken: false }
    }

    /// Takes bytes off the socket and deciphers them; false when the other end has closed it.
    fn take_in(&mut self) -> io::Result<bool> {
        if self.session.read_tls(&mut self.socket)? == 0 {
            if self.session.is_handshaking() {
                return Err(io::Error::other("it closed the connection during the TLS handshake"));
            }
            return Ok(false);
        }
        match self.session.process_new_packets() {
            Ok(state) => {
                self.held = state.plaintext_bytes_to_read();
                Ok(true)
            }
            Err(e) => {
                self.break_off();
                Err(broken(&e))
            }
        }
    }

    /// Tells the other end why, if that can be written at once.
    fn break_off(&mut self) {
        let _ = self.give_out();
        self.is_broken = true;
        let _ = self.socket.shutdown(Shutdown::Write);
        // What is left unread would make the kernel throw the alert away with a reset (RFC 1122 section 4.2.2.13).
        let mut room = [0; 4096];
        for _ in 0..16 {
            if !matches!(self.socket.read(&mut room), Ok(1..)) {
                break;
            }
        }
    }

    fn give_out(&mut self) -> io::Result<()> {
        while self.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Transport for Tls {
    fn name(&self) -> String {
        self.socket.peer_addr().map_or("ssl".into(), |peer| format!("ssl:{peer}"))
    }

    /// Of the messages or of the handshake.
    fn wants_write(&self) -> bool {
        self.session.wants_write() && !self.is_broken
    }

    fn holds(&self) -> bool {
        self.held > 0 || self.later.is_some()
    }

    fn is_shaking_hands(&self) -> bool {
        self.session.is_handshaking()
    }
}

impl AsFd for Tls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Tls {
    /// As much as there is and as there is room; `WouldBlock` when there is nothing, 0 at the end.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if let Some(e) = self.later.take() {
            return Err(e);
        }
        let mut filled = 0;
        while filled < room.len() {
            match self.session.reader().read(&mut room[filled..]) {
                // The other end said goodbye, or closed without it.
                Ok(0) => return Ok(filled),
                Ok(count) => {
                    filled += count;
                    self.held = self.held.saturating_sub(count);
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(filled),
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.held = 0,
                Err(e) => return Err(e),
            }
            match self.take_in() {
                Ok(true) => {}
                Ok(false) => return Ok(filled),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if filled == 0 => return Err(e),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // What was deciphered is read first.
                Err(e) => {
                    self.later = Some(e);
                    break;
                }
            }
        }
        Ok(filled)
    }
}

impl Write for Tls {
    /// Takes as much as there is room for; a part may still be here: see [`Tls::wants_write`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.session.writer().write(bytes)?;
        self.give_out()?;
        if taken == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.give_out()
    }
}

impl Drop for Tls {
    /// Says goodbye, if that can be said at once.
    fn drop(&mut self) {
        if !self.is_broken {
            self.session.send_close_notify();
            let _ = self.give_out();
        }
    }
}

fn broken(e: &Error) -> io::Error {
    io::Error::other(sentence(e))
}

/// What went wrong, seen from here: "it" is the other end.
fn sentence(e: &Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    let text = match e {
        Error::InvalidCertificate(Bad::UnknownIssuer) => "our CA certificate did not sign its certificate",
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => "its certificate has expired",
        Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate is not valid yet, or the clock of this host is behind"
        }
        Error::InvalidCertificate(Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. }) => {
            "its certificate is not meant for this end of a connection (extended key usage)"
        }
        Error::InvalidCertificate(Bad::BadSignature) => {
            "the signature of its certificate is not of our CA certificate, though the name is"
        }
        // rustls has no name of its own for it, only webpki's.
        Error::InvalidCertificate(Bad::Other(why)) if why.to_string().contains("UnsupportedCertVersion") => {
            "the certificate is of X.509 version 1, and TLS here takes version 3: sign it anew with extensions \
             (openssl x509 -req … -extfile FILE, with basicConstraints=CA:FALSE in FILE)"
        }
        Error::NoCertificatesPresented => "it shows no certificate",
        Error::AlertReceived(Alert::UnknownCA) => {
            "it refuses our certificate: its CA certificate did not sign ours"
        }
        // The alert of one that is not valid yet is the same.
        Error::AlertReceived(Alert::CertificateExpired) => {
            "it refuses our certificate as expired, or as not valid yet by its clock"
        }
        Error::AlertReceived(Alert::CertificateRequired) => "it says that we showed no certificate",
        // A signature that it cannot verify is, in a handshake, the one of our certificate (RFC 8446 section 6.2).
        Error::AlertReceived(
            Alert::DecryptError
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateUnknown,
        ) => "it refuses our certificate",
        Error::PeerIncompatible(why) => return incompatible(why),
        Error::AlertReceived(Alert::ProtocolVersion) => NO_VERSION,
        Error::AlertReceived(Alert::HandshakeFailure | Alert::InsufficientSecurity) => NO_CIPHER,
        Error::AlertReceived(alert) => return format!("it ended the TLS session: {alert:?}"),
        Error::InvalidMessage(_) => "what it sends is not TLS (is the other end plain tcp:?)",
        other => return other.to_string(),
    };
    text.to_owned()
}

/// The other end wants an older TLS.
const NO_VERSION: &str =
    "it speaks neither TLS 1.2 nor TLS 1.3, and no older TLS is spoken here: let it use one of them";
/// Both ends speak the same TLS, and cannot agree on what to encrypt with.
const NO_CIPHER: &str = "both ends have no cipher, curve or signature in common: TLS 1.3 has them, \
                         and of TLS 1.2 ECDHE with AES-GCM or ChaCha20-Poly1305 and SHA-256 or better";

/// What the two ends do not have in common.
fn incompatible(why: &PeerIncompatible) -> String {
    use PeerIncompatible as Not;
    let text = match why {
        // A hello without signature algorithms is one of TLS 1.1 or older (RFC 5246 section 7.4.1.4.1), or of a 1.2 that would take SHA-1.
        Not::Tls12NotOffered
        | Not::Tls12NotOfferedOrEnabled
        | Not::ServerDoesNotSupportTls12Or13
        | Not::ServerTlsVersionIsDisabledByOurConfig
        | Not::SignatureAlgorithmsExtensionRequired => NO_VERSION,
        Not::NoCipherSuitesInCommon
        | Not::NoKxGroupsInCommon
        | Not::NoSignatureSchemesInCommon
        | Not::NoCertificateRequestSignatureSchemesInCommon
        | Not::NamedGroupsExtensionRequired
        | Not::NoEcPointFormatsInCommon => NO_CIPHER,
        other => return format!("its TLS and ours do not fit together ({other:?})"),
    };
    text.to_owned()
}
