//! Counters to an OpenTelemetry collector: OTLP over HTTP with JSON, sent by ureq.
//!
//! **Price.** Nothing is kept for later: sums are cumulative, so the next push that arrives has all. Without TLS and without a proxy.

use super::{ExportCounts, ExportSource};
use linux::sys::clock;
use record::{Problem, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;
use study::export::otlp::{self, SampleTime};
use study::export::run::TestFamilies;

/// How long a push may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most that is read of an answer.
const MOST_ANSWER: u64 = 64 << 10;
/// The path of metrics where the URL has none (OpenTelemetry, `OTEL_EXPORTER_OTLP_ENDPOINT`).
const PATH: &str = "/v1/metrics";

/// A collector.
pub struct Collector {
    agent: ureq::Agent,
    url: String,
    host: String,
}

impl Collector {
    /// The collector at that URL.
    pub fn new(url: &str) -> Result<Collector> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        Ok(Collector {
            agent: config.build().into(),
            url: whole(url)?,
            host: linux::observe::facts::hostname(),
        })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Reads and sends.
    ///
    /// # Errors
    /// Why the collector does not have it, in words.
    pub fn push(&self, source: &ExportSource, counts: &ExportCounts) -> std::result::Result<(), String> {
        let sent = source.read().map_err(|problem| problem.to_string()).and_then(|families| {
            let version = env!("CARGO_PKG_VERSION");
            self.send(otlp::message(&families, clock::realtime_ns(), &self.host, version).to_string())
        });
        counted(sent, counts)
    }

    /// Sends the tests of a run, each at its own time.
    ///
    /// # Errors
    /// Host: the collector does not have them.
    pub fn push_run(&self, tests: &[TestFamilies], counts: &ExportCounts) -> Result<()> {
        let time = |test: &TestFamilies| SampleTime { since_ns: Some(test.begun_ns), at_ns: test.ended_ns };
        let readings: Vec<_> = tests.iter().map(|test| (time(test), &test.families)).collect();
        let message = otlp::message_of(&readings, &self.host, env!("CARGO_PKG_VERSION"));
        counted(self.send(message.to_string()), counts).map_err(|why| self.failed(&why))
    }

    fn failed(&self, why: &str) -> Problem {
        Problem::host(format!("the collector did not take the counters: {why}")).at(self.url.clone())
    }

    /// The same, where a failure is the end.
    pub fn push_once(&self, source: &ExportSource, counts: &ExportCounts) -> Result<()> {
        self.push(source, counts).map_err(|why| self.failed(&why))
    }

    fn send(&self, message: String) -> std::result::Result<otlp::Answer, String> {
        let sent = self.agent.post(&self.url).header("Content-Type", "application/json").send(message);
        let mut response = sent.map_err(|error| error.to_string())?;
        let text = response.body_mut().with_config().limit(MOST_ANSWER).read_to_string();
        match response.status() {
            status if status.is_success() => Ok(otlp::answer(&text.unwrap_or_default())),
            status => Err(format!("it answered {status}")),
        }
    }
}

/// Counts what became of a push.
fn counted(
    sent: std::result::Result<otlp::Answer, String>,
    counts: &ExportCounts,
) -> std::result::Result<(), String> {
    let count = if sent.is_ok() { &counts.pushed } else { &counts.failed };
    count.fetch_add(1, Ordering::Relaxed);
    counts.rejected.fetch_add(sent?.rejected, Ordering::Relaxed);
    Ok(())
}

/// The whole URL, or why it is none.
fn whole(url: &str) -> Result<String> {
    let wrong = |why: &str| {
        Problem::input(why)
            .at("--otlp")
            .help("write http://HOST:4318, where a collector listens for OTLP over HTTP")
    };
    let Some(rest) = url.strip_prefix("http://") else {
        let tls = url.starts_with("https://");
        return Err(wrong(if tls { "counters are not sent by TLS" } else { "this is no URL with http://" }));
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(wrong("this URL has no host"));
    }
    // Behind the brackets of an IPv6 address. One that is no number would be taken for none, and the counters would go to port 80.
    let behind = host.rsplit_once(['@', ']']).map_or(host, |(_, behind)| behind);
    if behind.split_once(':').is_some_and(|(_, port)| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err(wrong("this URL has no port that there is"));
    }
    Ok(if path.is_empty() { format!("http://{host}{PATH}") } else { url.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn a_url_has_a_host_and_the_usual_path_unless_it_says_another() {
        assert_eq!(whole("http://c:4318").unwrap(), "http://c:4318/v1/metrics");
        assert_eq!(whole("http://c:4318/").unwrap(), "http://c:4318/v1/metrics");
        assert_eq!(whole("http://c/x/y").unwrap(), "http://c/x/y");
        assert_eq!(whole("http://[fd00::1]").unwrap(), "http://[fd00::1]/v1/metrics");
        let wrong = [
            ("https://c", "TLS"),
            ("c:4318", "no URL"),
            ("http://", "no host"),
            ("http:// /", "no host"),
            ("http://c:99999", "no port"),
            ("http://[fd00::1]:x/y", "no port"),
        ];
        for (url, why) in wrong {
            assert!(whole(url).unwrap_err().to_string().contains(why), "{url}");
        }
    }
}
