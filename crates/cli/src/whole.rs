// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use crate::error::Error;

/// Writes a file whole or not at all, also where the machine loses its power: what is there keeps
/// its mode and, where it is a link, its place. What is no file (a terminal, a pipe) is written to.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    let refused = |e: io::Error| Error::refused(format!("{}: {e}", path.display()));
    let at = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&at).ok();
    if old.as_ref().is_some_and(|old| !old.is_file() && !old.is_dir()) {
        return fs::write(&at, text).map_err(refused);
    }
    let mut name = at.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new{}", std::process::id()));
    let new = at.with_file_name(name);
    // Nobody else's: a link of that name would be followed.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new).map_err(refused)?;
    let mut whole = || {
        if let Some(old) = &old {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &at)?;
        at.parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    whole().map_err(|e| {
        let _ = fs::remove_file(&new);
        refused(e)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_keeps_its_mode_and_a_link_its_place() {
        let folder = std::env::temp_dir().join(format!("reserv-whole-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("file", &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        // Somebody has put a link where the new file is made first.
        let trap = folder.join(format!("file.new{}", std::process::id()));
        symlink("elsewhere", &trap).unwrap();
        assert!(write(&file, "newer").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(!folder.join("elsewhere").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
