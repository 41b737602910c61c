// SPDX-License-Identifier: MIT OR Apache-2.0
//! Default lists: one queue per resource and process.

use crate::error::{Error, Result};
use crate::files::Attempt;
use crate::place::Place;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// What the process opens, accepts and connects is tagged from it.
    Default,
    /// What its children inherit as both lists.
    Child,
}

impl List {
    fn file(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Child => "cdefault",
        }
    }
}

/// The directory of a process. The caller's own is a link, which is right in any pid name space.
fn process(place: &Place, pid: i32) -> Result<String> {
    match pid {
        0 => place.way.own().map_err(|e| place.explain(&Attempt::reading("self", "link"), &e)),
        1.. => Ok(format!("proc/{pid}")),
        _ => Err(Error::new(libc::EINVAL, format!("{pid} is no process; 0 is the caller"))),
    }
}

/// The paths in a list, which stand one after another or one per line behind the name of their
/// resource.
fn paths<'t>(place: &Place, text: &'t str) -> Vec<(String, &'t str)> {
    let resource = |path: &str| place.node(path).ok()?.split('/').next().map(str::to_owned);
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .filter_map(|w| Some((resource(w)?, w)))
        .collect()
}

/// Why a file of a process lacks a resource's part, if it says so: the resource gives no answer.
pub(crate) fn late(text: &str, resource: &str) -> Option<String> {
    let about = format!("# {resource}: ");
    text.lines().find_map(|line| line.strip_prefix(&about)).map(str::to_owned)
}

/// The queue of a process (0: the caller's) for a resource; of all resources, with blanks between,
/// where none is named.
pub fn get_list(pid: i32, which: List, resource: Option<&str>) -> Result<String> {
    let place = Place::find()?;
    if let Some(name) = resource {
        place.resource(name)?;
    }
    let dir = process(&place, pid)?;
    let attempt = Attempt::reading(&dir, which.file());
    let text =
        place.read(&format!("{dir}/{}", which.file())).map_err(|e| place.explain(&attempt, &e))?;
    let found = paths(&place, &text);
    let Some(name) = resource else {
        return Ok(found.iter().map(|(_, path)| *path).collect::<Vec<_>>().join(" "));
    };
    found.iter().find(|(r, _)| r == name).map(|(_, path)| (*path).to_owned()).ok_or_else(|| {
        match late(&text, name) {
            Some(why) => Error::new(libc::EAGAIN, why),
            None => {
                Error::new(libc::ENOENT, format!("{dir}/{} has no queue for {name}", which.file()))
            }
        }
    })
}

/// Sets the queues of a process for the resources of those that are named, with blanks between;
/// others keep theirs.
pub fn set_list(pid: i32, which: List, queues: &str) -> Result<()> {
    let place = Place::find()?;
    let words: Vec<String> =
        queues.split_whitespace().map(|word| place.node(word)).collect::<Result<_>>()?;
    if words.is_empty() {
        return Err(Error::new(libc::EINVAL, "no queue is named; as in cpu/web/site1"));
    }
    let dir = process(&place, pid)?;
    let text = words.join(" ");
    place
        .write(&format!("{dir}/{}", which.file()), &text)
        .map_err(|e| place.explain(&Attempt::writing(&dir, which.file(), &text), &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::Way;

    #[test]
    fn a_part_that_is_missing_is_said() {
        let text = "/m/cpu/q2\n# vda: vda waits for its driver, since 3 s\n";
        assert_eq!(late(text, "vda").as_deref(), Some("vda waits for its driver, since 3 s"));
        assert_eq!(late(text, "cpu"), None);
    }

    #[test]
    fn both_forms_of_a_list() {
        let place = Place { root: "/m".into(), dev: 0, way: Way::Mount("/m".into()) };
        for text in ["/m/cpu/q2 /m/vda/r1/q0\n", "cpu /m/cpu/q2\nvda /m/vda/r1/q0\n"] {
            let got = paths(&place, text);
            let want = [("cpu".to_owned(), "/m/cpu/q2"), ("vda".to_owned(), "/m/vda/r1/q0")];
            assert_eq!(got, want, "{text}");
        }
    }
}
