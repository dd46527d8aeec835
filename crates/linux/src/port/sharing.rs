//! Which ports share memory, so that a frame goes from one to the other by the number of its chunk.
//!
//! **What.** [`areas`] looks at the names of all ports of a program before any is opened, and makes one
//! [`Area`] for those that can share: AF_XDP ports that copy, wake and size their chunks alike (a socket that
//! shares takes over how the first one does that), and wires in memory with equal chunks.
//!
//! **Why.** Two ports over one area copy nothing (`docs/decisions/0007-frame-currency.md`), and the memory
//! has to be there before the first of them is opened.
//!
//! **Price.** An area is as large as its ports need together, and each end keeps a list of all its chunks:
//! [`MOST`] ports share at most, and between two areas each frame is copied once.

use super::area::{Sharing, SharingClass};
use super::uri::Uri;
use super::{Area, mem, xdp};
use record::{Problem, Result};
use std::sync::Arc;

/// Ports of one area.
const MOST: usize = 32;

/// Ports that share, by their places in the list.
struct Group {
    class: SharingClass,
    chunks: u32,
    chunk_bytes: u32,
    members: Vec<usize>,
}

/// Memory for ports of these names, the same for those that can share it; none for a port that shares with no
/// other, and is to be opened with memory of its own.
///
/// # Errors
/// As [`super::open`] for names, settings and interfaces; host when there is no memory.
pub fn areas(uris: &[&str]) -> Result<Vec<Option<Arc<Area>>>> {
    let mut groups: Vec<Group> = vec![];
    for (member, uri) in uris.iter().enumerate() {
        let Some(Sharing { class, chunks, chunk_bytes }) = sharing(uri)? else { continue };
        match groups.iter_mut().find(|group| group.class == class && group.members.len() < MOST) {
            Some(group) => {
                group.chunks += chunks;
                group.chunk_bytes = group.chunk_bytes.max(chunk_bytes);
                group.members.push(member);
            }
            None => groups.push(Group { class, chunks, chunk_bytes, members: vec![member] }),
        }
    }
    let mut areas = vec![None; uris.len()];
    for group in groups.iter().filter(|group| group.members.len() > 1) {
        let area = Area::new(group.chunks, group.chunk_bytes);
        let area = area.map_err(|e| {
            Problem::host(format!("cannot map memory for frames: {e}")).help("ask for fewer frames=")
        })?;
        group.members.iter().for_each(|&member| areas[member] = Some(area.clone()));
    }
    Ok(areas)
}

/// What a port needs, if its kind can share. `fault:` hands the wish on to the port inside.
fn sharing(uri: &str) -> Result<Option<Sharing>> {
    let inside = uri.trim_start_matches("fault:");
    match inside.split(':').next() {
        Some("xdp") => xdp::sharing(&mut Uri::parse(inside)?).map(Some),
        Some("mem") => mem::sharing(&mut Uri::parse(inside)?).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_share_what_they_use_alike() {
        let uris = ["mem:a", "tap:t", "fault:mem:b?lose=1%", "mem:c?chunk=4096", "mem:d?frames=1"];
        let areas = areas(&uris).unwrap();
        let area = areas[0].as_ref().unwrap();
        let same = |other: &Option<Arc<Area>>| other.as_ref().is_some_and(|other| Arc::ptr_eq(area, other));
        assert_eq!(areas.iter().map(same).collect::<Vec<_>>(), [true, false, true, false, true]);
        // One with larger chunks is alone, and so without an area.
        assert!(areas[3].is_none());
        assert_eq!((area.chunks(), area.chunk_bytes()), (2 * (1024 + 1024 + 1) + 3 * 1024, 2048));
    }

    #[test]
    fn an_area_has_so_many_ports_at_most() {
        let uris: Vec<String> = (0..MOST + 2).map(|number| format!("mem:w{number}?frames=1")).collect();
        let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
        let areas = areas(&uris).unwrap();
        let areas: Vec<_> = areas.iter().map(|area| Arc::as_ptr(area.as_ref().unwrap())).collect();
        assert!(areas[..MOST].iter().all(|area| *area == areas[0]));
        assert!(areas[MOST] != areas[0] && areas[MOST] == areas[MOST + 1]);
    }
}
