//! What every kind of port tells of itself: its settings.

use record::PortSetting;

/// A value as it was asked for; empty when it was not.
pub fn text(asked: Option<impl ToString>) -> String {
    asked.map(|asked| asked.to_string()).unwrap_or_default()
}

/// One setting with what was asked, what took effect and what is to be known of it.
pub fn setting(
    name: &str,
    asked: impl Into<String>,
    effective: impl Into<String>,
    note: impl Into<String>,
) -> PortSetting {
    PortSetting { name: name.into(), asked: asked.into(), effective: effective.into(), note: note.into() }
}
