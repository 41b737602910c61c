// SPDX-License-Identifier: MIT OR Apache-2.0
//! Journals: what an adopting daemon must know and the kernel does not keep. The daemon's intents,
//! and the trees of planes whose mechanism keeps none.
//!
//! One file in a file system in RAM (`/run/reserv/journal`): it must survive the daemon, not the
//! machine, so nothing is synced. Layout: 8 bytes of magic and version, then records: length (4
//! bytes, little-endian), CRC-32 of the payload (4), payload.
//!
//! Rules
//! * A record is appended by **one** `write`: a daemon killed at any instant leaves it whole or
//!   absent. Should a tail be torn nevertheless, opening cuts the file behind the last good record.
//! * The last record can be taken back ([`Journal::undo`]): the plane refused what it announced.
//! * [`Journal::replace`] writes a new file with one record (a snapshot) and renames it over the
//!   old one, so that at every instant one complete journal bears the name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"RSVJ\x03\0\0\0";
/// The versions before, which had fewer kinds of records: read, and written anew when the journal
/// is next replaced.
const MAGICS_BEFORE: [[u8; 8]; 2] = [*b"RSVJ\x01\0\0\0", *b"RSVJ\x02\0\0\0"];
const FRAME: usize = 8;
/// Longest payload; a longer length field is damage.
pub const PAYLOAD_MAX: usize = 64 << 20;
/// A journal is compacted when it is this long, and four times as long as its snapshot …
const COMPACT_MIN: u64 = 1 << 20;
/// … and not so soon after it could not be: the snapshot is made under a resource's lock.
const COMPACT_PAUSE: Duration = Duration::from_secs(10);

/// An open journal, positioned at its end.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Length of the good part.
    end: u64,
    /// Where the last record begins.
    last: u64,
    frame: Vec<u8>,
}

/// When a journal is compacted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compaction {
    /// Length of the journal after the last one.
    length: u64,
    /// The last try failed: not before this.
    again: Option<Instant>,
}

impl Compaction {
    /// Whether a journal of this length is compacted now.
    pub fn is_due(&self, length: u64, now: Instant) -> bool {
        length > COMPACT_MIN.max(4 * self.length) && self.again.is_none_or(|at| now >= at)
    }

    /// It was, to this length.
    pub fn done(&mut self, length: u64) {
        *self = Self { length, again: None };
    }

    /// It could not be.
    pub fn failed(&mut self, now: Instant) {
        self.again = Some(now + COMPACT_PAUSE);
    }
}

/// Splits the records off `bytes` (without the magic); answers them and how many bytes they take.
/// What follows is torn.
#[doc(hidden)] // but for `fuzz/`
pub fn records(bytes: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(frame) = bytes.get(at..at + FRAME) {
        let word =
            |i: usize| u32::from_le_bytes([frame[i], frame[i + 1], frame[i + 2], frame[i + 3]]);
        let len = word(0) as usize;
        let Some(payload) =
            (len <= PAYLOAD_MAX).then(|| bytes.get(at + FRAME..at + FRAME + len)).flatten()
        else {
            break;
        };
        if crc32fast::hash(payload) != word(4) {
            break;
        }
        found.push(payload.to_vec());
        at += FRAME + len;
    }
    (found, at)
}

fn frame_into(frame: &mut Vec<u8>, payload: &[u8]) -> io::Result<()> {
    let len = u32::try_from(payload.len()).ok().filter(|&len| len as usize <= PAYLOAD_MAX);
    let len =
        len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "journal record too long"))?;
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    frame.extend_from_slice(payload);
    Ok(())
}

impl Journal {
    /// Opens the journal, or makes an empty one; answers the payloads of its good records. A file
    /// that is no journal of ours (or of another version) is an error, not an empty journal.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<Vec<u8>>)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut start = MAGIC.len();
        if Self::start_of(&bytes)?.is_none() {
            file.write_all_at(&MAGIC, 0)?;
            bytes = MAGIC.to_vec();
        }
        let (found, len) = records(&bytes[start..]);
        let mut last = start;
        for payload in &found {
            last = start;
            start += FRAME + payload.len();
        }
        debug_assert_eq!(start, MAGIC.len() + len, "records are contiguous");
        let end = start as u64;
        if end < bytes.len() as u64 {
            tracing::warn!(path = %path.display(), cut = bytes.len() as u64 - end, "torn tail of the journal cut");
            file.set_len(end)?;
        }
        Ok((Self { path: path.to_owned(), file, end, last: last as u64, frame: Vec::new() }, found))
    }

    /// The payloads of a journal's good records, read only; none of one that is not there.
    pub fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        match Self::start_of(&bytes)? {
            Some(start) => Ok(records(&bytes[start..]).0),
            None => Ok(Vec::new()),
        }
    }

    /// Where the records begin; none: it is new, or torn while it was made. An error: of another
    /// version.
    fn start_of(bytes: &[u8]) -> io::Result<Option<usize>> {
        if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
            return Ok(None);
        }
        if !MAGICS_BEFORE.iter().chain([&MAGIC]).any(|magic| bytes.starts_with(magic)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no journal of this version"));
        }
        Ok(Some(MAGIC.len()))
    }

    /// Length in bytes, for the decision to compact.
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.end == MAGIC.len() as u64
    }

    /// Appends a record by one system call.
    pub fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        self.frame.clear();
        frame_into(&mut self.frame, payload)?;
        // A short write (no memory left in the file system) leaves a torn tail: cut it at once.
        let wrote = self.file.write_at(&self.frame, self.end);
        match wrote {
            Ok(n) if n == self.frame.len() => {
                self.last = self.end;
                self.end += self.frame.len() as u64;
                Ok(())
            }
            other => {
                self.file.set_len(self.end)?;
                other.and(Err(io::Error::from_raw_os_error(libc::ENOSPC)))
            }
        }
    }

    /// Takes the last record back. At most once per record appended or read.
    pub fn undo(&mut self) -> io::Result<()> {
        self.file.set_len(self.last)?;
        self.end = self.last;
        Ok(())
    }

    /// Replaces all records by one.
    pub fn replace(&mut self, payload: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut frame = MAGIC.to_vec();
        frame_into(&mut frame, payload)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&frame)?;
        std::fs::rename(&new, &self.path)?;
        self.file = file;
        self.last = MAGIC.len() as u64;
        self.end = frame.len() as u64;
        Ok(())
    }

    /// Removes the file: there is nothing to adopt any more.
    pub fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// A path of its own in the temporary directory, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let base = Some(PathBuf::from("/dev/shm"))
                .filter(|p| p.is_dir())
                .unwrap_or_else(std::env::temp_dir);
            Self(base.join(format!("reserv-journal-{}-{n}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn filled(path: &Path, payloads: &[Vec<u8>]) -> Vec<u8> {
        let (mut journal, found) = Journal::open(path).unwrap();
        assert!(found.is_empty());
        for payload in payloads {
            journal.append(payload).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_was_appended_is_read_again_and_undo_takes_one_back() {
        let scratch = Scratch::new();
        let payloads = vec![b"one".to_vec(), vec![], b"three".to_vec()];
        filled(&scratch.0, &payloads);
        let (mut journal, found) = Journal::open(&scratch.0).unwrap();
        assert_eq!(found, payloads);
        journal.undo().unwrap();
        journal.append(b"four").unwrap();
        let (_, found) = Journal::open(&scratch.0).unwrap();
        assert_eq!(found, [b"one".to_vec(), vec![], b"four".to_vec()]);
    }

    #[test]
    fn replacing_leaves_one_record_and_further_ones_follow_it() {
        let scratch = Scratch::new();
        filled(&scratch.0, &[b"one".to_vec(), b"two".to_vec()]);
        let (mut journal, _) = Journal::open(&scratch.0).unwrap();
        journal.replace(b"all").unwrap();
        journal.append(b"more").unwrap();
        journal.append(b"wrong").unwrap();
        journal.undo().unwrap();
        drop(journal);
        let (_, found) = Journal::open(&scratch.0).unwrap();
        assert_eq!(found, [b"all".to_vec(), b"more".to_vec()]);
    }

    #[test]
    fn a_long_journal_is_compacted_and_after_a_failure_not_at_every_record() {
        let (mut compaction, now) = (Compaction::default(), Instant::now());
        assert!(!compaction.is_due(COMPACT_MIN, now) && compaction.is_due(COMPACT_MIN + 1, now));
        compaction.failed(now);
        assert!(!compaction.is_due(COMPACT_MIN + 1, now + COMPACT_PAUSE / 2));
        assert!(compaction.is_due(COMPACT_MIN + 1, now + COMPACT_PAUSE));
        compaction.done(COMPACT_MIN);
        assert!(!compaction.is_due(4 * COMPACT_MIN, now));
        assert!(compaction.is_due(4 * COMPACT_MIN + 1, now));
    }

    #[test]
    fn cut_at_every_byte_the_journal_is_a_prefix() {
        let scratch = Scratch::new();
        let payloads: Vec<Vec<u8>> = (0..12_u8).map(|n| vec![n; usize::from(n) * 3]).collect();
        let whole = filled(&scratch.0, &payloads);
        for cut in 0..=whole.len() {
            std::fs::write(&scratch.0, &whole[..cut]).unwrap();
            let (mut journal, found) = Journal::open(&scratch.0).unwrap();
            assert_eq!(found, payloads[..found.len()], "cut at {cut}");
            let complete = payloads.iter().scan(MAGIC.len(), |at, p| {
                *at += FRAME + p.len();
                Some(*at)
            });
            assert_eq!(found.len(), complete.take_while(|&end| end <= cut).count(), "cut at {cut}");
            journal.append(b"next").unwrap();
            let (_, again) = Journal::open(&scratch.0).unwrap();
            assert_eq!(again.len(), found.len() + 1);
            assert_eq!(again.last().unwrap(), b"next");
        }
    }

    #[test]
    fn the_versions_before_are_read_and_one_after_is_not() {
        let scratch = Scratch::new();
        let mut bytes = filled(&scratch.0, &[b"one".to_vec()]);
        for before in [1, 2] {
            bytes[4] = before;
            std::fs::write(&scratch.0, &bytes).unwrap();
            let (mut journal, found) = Journal::open(&scratch.0).unwrap();
            assert_eq!(found, [b"one".to_vec()]);
            journal.replace(b"all").unwrap();
            assert_eq!(std::fs::read(&scratch.0).unwrap()[..8], MAGIC);
        }
        bytes[4] = 4;
        std::fs::write(&scratch.0, &bytes).unwrap();
        assert!(Journal::open(&scratch.0).is_err());
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_alone() {
        let scratch = Scratch::new();
        std::fs::write(&scratch.0, b"something else").unwrap();
        assert_eq!(Journal::open(&scratch.0).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read(&scratch.0).unwrap(), b"something else");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn damage_never_panics_and_never_invents(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..8),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), 1..=255_u8), 1..4),
        ) {
            let scratch = Scratch::new();
            let mut bytes = filled(&scratch.0, &payloads);
            for (at, xor) in damage {
                let at = at.index(bytes.len());
                bytes[at] ^= xor;
            }
            std::fs::write(&scratch.0, &bytes).unwrap();
            if let Ok((_, found)) = Journal::open(&scratch.0) {
                prop_assert!(found.len() <= payloads.len());
                // CRC-32 finds every damage of up to three bytes in records this short, unless the
                // length was hit such that other bytes happen to match, which 200 cases do not
                // meet.
                prop_assert_eq!(&found[..], &payloads[..found.len()]);
            }
        }
    }
}
