// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a refusal, by the commands and by libreserv: the daemon's own words where it has
//! said any, else what the errno means.

/// What an errno means when it comes from a file of /reserv, or from the control socket for one;
/// reserv(7) has the same table. `None`: what it means anywhere.
pub const fn reason(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::ENOENT => "there is no such node",
        libc::ESRCH => "there is no such process or thread",
        libc::EEXIST => "a node of this name exists already",
        libc::ENOTEMPTY => "it still has children",
        libc::EBUSY => "it is in use",
        libc::EINVAL => "Reserv does not understand this value",
        libc::ENOSPC => "the tree is full",
        libc::EAGAIN => {
            "the queue has as many members as it may have, or the resource waits for its driver ('reserv status')"
        }
        libc::ETIMEDOUT => "no answer in time: the resource waits for its driver ('reserv status')",
        libc::EOPNOTSUPP => "the driver in use cannot do this",
        libc::EROFS => "this is read-only",
        libc::EACCES => "not permitted",
        libc::EPERM => "the resource itself and q0 allow less than other nodes",
        libc::EMLINK => "the tree would get too deep",
        libc::EMSGSIZE => "the text is too long",
        libc::EILSEQ => "this is no text",
        libc::ENOTDIR => "a queue has no children",
        libc::EISDIR => "this is a directory",
        libc::ELOOP => "a node cannot be moved below itself",
        libc::EXDEV => "a node stays within its resource",
        libc::ENAMETOOLONG => "the name is too long",
        libc::EIO => "the data plane did not answer",
        libc::ENOTCONN | libc::ECONNREFUSED => "reservd is not running",
        libc::ESTALE => "the node was deleted meanwhile",
        _ => return None,
    })
}

/// Why there is no Reserv at a mount point that is served by nobody, or is none; and what would
/// help.
pub fn not_running(at: impl std::fmt::Display, mounted: bool) -> (String, &'static str) {
    if mounted {
        let why = format!("{at} is mounted, but reservd is not running");
        return (why, "start reservd again, it will adopt the running tree: reserv up");
    }
    (format!("Reserv is not running: {at} is not mounted"), "start it with: reserv up")
}

/// The daemon's words without the file's name where it stands there twice: its grammar puts it once
/// more.
pub fn plain(said: &str) -> &str {
    match said.split_once(": ") {
        Some((first, rest)) if rest.starts_with(&format!("{first}: ")) => rest,
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_twice_is_said_once() {
        assert_eq!(plain("cap: cap: new"), "cap: new");
        for said in ["cap: new", "cap: caps: new", "new", ""] {
            assert_eq!(plain(said), said);
        }
    }

    #[test]
    fn each_is_one_sentence_and_another() {
        let all: Vec<_> = (0..200).filter_map(|errno| Some((errno, reason(errno)?))).collect();
        assert!(all.len() >= 24);
        for (errno, text) in &all {
            assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
            let same = all.iter().filter(|(_, other)| other == text).count();
            let gone = [libc::ENOTCONN, libc::ECONNREFUSED].contains(errno);
            assert_eq!(same, if gone { 2 } else { 1 }, "{text}");
        }
    }
}
