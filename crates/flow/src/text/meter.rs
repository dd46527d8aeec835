//! Meters as text.

use super::{Piece, Result, hex};
use crate::meter::{ALL_METERS, Band, BandKind, CONTROLLER_METER, Meter, MeterFlags, SLOWPATH_METER};

const NAMES: [(u32, &str); 3] =
    [(SLOWPATH_METER, "slowpath"), (CONTROLLER_METER, "controller"), (ALL_METERS, "all")];
const FLAGS: [&str; 4] = ["kbps", "pktps", "burst", "stats"];

/// Writes a meter.
pub fn show(meter: &Meter) -> String {
    let name = NAMES.iter().find(|(id, _)| *id == meter.id).map(|(_, name)| name.to_string());
    let mut text = format!("meter={}", name.unwrap_or(meter.id.to_string()));
    for (bit, name) in FLAGS.iter().enumerate() {
        if meter.flags.0 & 1 << bit != 0 {
            text.push_str(&format!(",{name}"));
        }
    }
    for band in &meter.bands {
        let kind = match &band.kind {
            BandKind::Drop => "drop".to_owned(),
            BandKind::DscpRemark { prec_level } => format!("dscp_remark,prec_level={prec_level}"),
            BandKind::Experimenter { experimenter, data } => {
                format!("experimenter,experimenter={experimenter:#x},data={}", hex(data))
            }
        };
        text.push_str(&format!(",band=type={kind},rate={}", band.rate));
        if band.burst_size != 0 {
            text.push_str(&format!(",burst_size={}", band.burst_size));
        }
    }
    text
}

/// Reads the number of a meter, or the name of one that has a name.
pub fn number(text: Piece<'_>) -> Result<u32> {
    let named = NAMES.iter().find(|(_, name)| *name == text.text);
    named.map_or_else(|| text.int(), |(id, _)| Ok(*id))
}

/// Reads a meter.
pub fn parse(line: &str) -> Result<Meter> {
    let line = Piece::line(line).trimmed();
    let (head, mut rest) = cut_band(line);
    let (mut id, mut flags) = (None, 0);
    for item in head.items() {
        if let Some(bit) = FLAGS.iter().position(|name| *name == item.text) {
            flags |= 1 << bit;
            continue;
        }
        match item.split(&['=']) {
            (name, Some(text)) if ["meter", "meter_id"].contains(&name.text) => {
                id = Some(number(text)?);
            }
            _ => return item.error(format!("`{}` is not a property of a meter", item.text)),
        }
    }
    let Some(id) = id else { return line.error("a meter needs meter=NUMBER") };
    let mut meter = Meter { id, flags: MeterFlags(flags), bands: vec![] };
    while let Some(text) = rest {
        let (one, next) = cut_band(text);
        meter.bands.push(band(one)?);
        rest = next;
    }
    Ok(meter)
}

/// The text up to the next band, and what follows; ovs-ofctl writes `band=`, `bands=` and, between bands, only `type=`.
fn cut_band(text: Piece<'_>) -> (Piece<'_>, Option<Piece<'_>>) {
    let begin =
        if text.items().iter().any(|item| item.text.starts_with("bands=")) { "bands=" } else { "band=" };
    text.cut(begin)
}

fn band(text: Piece<'_>) -> Result<Band> {
    let (mut kind, mut rate, mut burst_size) = (None, None, 0);
    let (mut prec_level, mut experimenter, mut data) = (0, 0, vec![]);
    for item in text.items() {
        let (name, value) = item.split(&['=']);
        match (name.text, value) {
            ("type", Some(value)) => kind = Some(value),
            ("rate", Some(value)) => rate = Some(value.int()?),
            ("burst_size", Some(value)) => burst_size = value.int()?,
            ("prec_level", Some(value)) => prec_level = value.int()?,
            ("experimenter", Some(value)) => experimenter = value.int()?,
            ("data", Some(value)) => data = value.hex()?,
            _ => return item.error(format!("`{}` is not a property of a band", item.text)),
        }
    }
    let kind = match kind.map(|kind| (kind, kind.text)) {
        Some((_, "drop")) => BandKind::Drop,
        Some((_, "dscp_remark")) => BandKind::DscpRemark { prec_level },
        Some((_, "experimenter")) => BandKind::Experimenter { experimenter, data },
        Some((kind, _)) => return kind.error("the type of a band is drop or dscp_remark"),
        None => return text.error("a band needs type=drop or type=dscp_remark"),
    };
    let Some(rate) = rate else { return text.error("a band needs rate=NUMBER") };
    Ok(Band { rate, burst_size, kind })
}
