//! The flags of TLS, which all commands that speak OpenFlow share.
//!
//! **Why these names.** They are those of ovs-ofctl, so that a line for one works with the other.

use clap::Args;
use std::path::PathBuf;
use switch::tls::TlsFiles;

/// Key and certificates.
#[derive(Args)]
pub struct TlsArgs {
    /// The private key of this end, for ssl: and pssl: (PEM).
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
    /// The certificate of this end (PEM).
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The authority that signs the certificates of the other ends (PEM).
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
}

impl TlsArgs {
    /// The files that were named.
    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            private_key: self.private_key.clone(),
            certificate: self.certificate.clone(),
            ca_cert: self.ca_cert.clone(),
        }
    }
}
