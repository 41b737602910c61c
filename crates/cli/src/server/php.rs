// SPDX-License-Identifier: MIT OR Apache-2.0
//! PHP-FPM: `php-fpm -t` tests FPM's configuration, `php-fpm -i` says which files PHP's own has.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::{PHP, Said, ask};

/// Where distributions put a program for each version of PHP.
const FOLDERS: &[&str] = &["/usr/sbin", "/usr/local/sbin", "/usr/bin"];

pub(super) fn read(config: Option<&Path>) -> Result<Said, String> {
    let option = config.map(|file| (PHP.option, file));
    let (program, tested) = tested(config)?;
    let text = String::from_utf8_lossy(&tested.stderr);
    if !tested.status.success() {
        return Err(format!("{program} refuses it: {}", refusal(&text)));
    }
    let info = ask(&program, &["-i"], option).map_err(|e| format!("{program}: {e}"))?;
    let info = String::from_utf8_lossy(&info.stdout);
    let mut said = Said { wrong: objections(&text), ..Said::default() };
    for file in ini_files(&info) {
        let bytes = fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        read_ini(file, &String::from_utf8_lossy(&bytes), &mut said);
    }
    if !info.lines().any(|line| line.starts_with("reserv.containers =>")) {
        said.module = None;
    }
    if !said.roots.is_empty() {
        let place = "the web server's parameter".to_owned();
        said.later.insert("RESERV_CONTAINER of each request".to_owned(), place);
    }
    if let Some(file) = accepted(&text) {
        read_pools(&file, &mut said)?;
        said.config = Some(file);
    }
    Ok(said)
}

/// The program that a configuration is for, and what it says of it. `/etc/php/8.2/fpm/…` is for
/// `php-fpm8.2`; a path that names no version is for the program without one, or for the latest.
fn tested(config: Option<&Path>) -> Result<(String, Output), String> {
    // Where PHP has no log of its own, its words are on the standard error.
    const WORDS: &[&str] = &["-t", "-d", "error_log="];
    let option = config.map(|file| (PHP.option, file));
    let of_path = config.into_iter().flat_map(Path::components);
    let versions = of_path.filter_map(|part| part.as_os_str().to_str().filter(|s| version(s)));
    let mut names: Vec<String> = versions.map(|version| format!("php-fpm{version}")).collect();
    names.push("php-fpm".to_owned());
    names.extend(newest());
    for name in names {
        match ask(&name, WORDS, option) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{name}: {e}")),
            Ok(out) => return Ok((name, out)),
        }
    }
    Err(format!("there is no php-fpm in PATH, nor php-fpm8.2 or alike in {}", FOLDERS.join(", ")))
}

/// `8.2`, as in names of programs.
fn version(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|sign| sign.is_ascii_digit());
    text.split_once('.').is_some_and(|(major, minor)| digits(major) && digits(minor))
}

fn newest() -> Option<String> {
    let number = |name: &String| -> Option<(u32, u32)> {
        let (major, minor) = name.strip_prefix("php-fpm")?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let entries = FOLDERS.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| number(name).is_some()).max_by_key(number)
}

/// Why it is refused: lines like `[29-Nov-2026 07:32:10] ERROR: failed to open …`.
fn refusal(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split_once("] ERROR: "));
    let why: Vec<&str> = lines.map(|(_, why)| why).take(2).collect();
    if why.is_empty() { "it does not say why".to_owned() } else { why.join("; ") }
}

/// What PHP says against Reserv's settings, and against the extension.
fn objections(text: &str) -> Vec<String> {
    let messages = text.lines().filter_map(|line| line.split_once("PHP message: "));
    let objection = |(_, message): (&str, &str)| -> Option<String> {
        if let Some(word) = message.strip_prefix("reserv: ") {
            return word.starts_with("invalid ").then(|| word.to_owned());
        }
        let (_, what) = message.split_once("Unable to load dynamic library ")?;
        let file = what.split(" (tried").next()?;
        file.contains("reserv").then(|| format!("PHP cannot load {file}"))
    };
    messages.filter_map(objection).collect()
}

/// The main file that a successful test names.
fn accepted(text: &str) -> Option<PathBuf> {
    let line = text.lines().find_map(|line| line.strip_suffix(" test is successful"))?;
    Some(PathBuf::from(line.split_once("configuration file ")?.1))
}

/// PHP's files in the order in which they are read. A list goes on over lines that end in a comma.
fn ini_files(info: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut more = false;
    for line in info.lines() {
        let names = match line.split_once(" => ") {
            Some(("Loaded Configuration File" | "Additional .ini files parsed", names)) => names,
            _ if more => line,
            _ => continue,
        };
        more = names.ends_with(',');
        found.extend(names.split(',').map(str::trim).filter(|name| name.starts_with('/')));
    }
    found
}

/// A line of an ini file: key and value, without quotes and what follows them.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    if key.starts_with([';', '#', '[']) {
        return None;
    }
    let value = match value.strip_prefix(['"', '\'']) {
        Some(inner) => inner.split(['"', '\'']).next()?,
        None => value.split(';').next()?.trim(),
    };
    Some((key, value))
}

fn read_ini(file: &str, text: &str, said: &mut Said) {
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        match setting(line) {
            Some(("extension", value)) if value.contains("reserv") => said.module = Some(place),
            // The last one counts.
            Some(("reserv.containers", value)) => {
                said.roots.clear();
                said.on.clear();
                for word in value.split([' ', ',', '\t']).filter(|word| !word.is_empty()) {
                    said.roots.entry(word.to_owned()).or_insert_with(|| place.clone());
                }
                if !said.roots.is_empty() {
                    said.on.push(place);
                }
            }
            Some(("reserv.container", value)) => {
                said.shares.clear();
                said.later.clear();
                said.share(value, &['$'], &place);
            }
            _ => {}
        }
    }
}

/// The pools of FPM's main file and of those that it includes.
fn read_pools(main: &Path, said: &mut Said) -> Result<(), String> {
    let text = read_pool(main, said)?;
    let includes = text.lines().filter_map(setting).filter(|(key, _)| *key == "include");
    for path in includes.flat_map(|(_, pattern)| matching(pattern)) {
        read_pool(&path, said)?;
    }
    Ok(())
}

/// One of these files, and what is in it.
fn read_pool(path: &Path, said: &mut Said) -> Result<String, String> {
    let file = path.display().to_string();
    let bytes = fs::read(path).map_err(|e| format!("{file}: {e}"))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    pool(&file, &text, said);
    Ok(text)
}

fn pool(file: &str, text: &str, said: &mut Said) {
    let mut pool = "";
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            pool = name;
        }
        match setting(line) {
            Some(("pm.max_children", value)) => {
                let found = format!("{pool}: at most {value} requests at once");
                let means = "who waits for a worker is in no container: let the web server send \
                             no more at once, of all sites together";
                said.notes.push(("pool", found, means));
            }
            Some(("php_admin_value[reserv.container]", value)) => {
                said.share(value, &['$'], &format!("{file}:{}", number + 1));
            }
            _ => {}
        }
    }
}

/// The files that a pattern names, of whose last part `*` stands for any signs.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let Some((folder, name)) = pattern.rsplit_once('/') else { return Vec::new() };
    let fits = |text: &str| match name.split_once('*') {
        Some((front, back)) => {
            text.len() >= front.len() + back.len()
                && text.starts_with(front)
                && text.ends_with(back)
        }
        None => text == name,
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<PathBuf> =
        names.filter(|name| fits(name)).map(|name| Path::new(folder).join(name)).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(value, place)| ((*value).to_owned(), (*place).to_owned())).collect()
    }

    #[test]
    fn what_is_said_of_reserv_is_found_with_its_place() {
        let mut said = Said::default();
        let text = "; extension = php_reserv.so\nextension = php_reserv.so\n\
                    reserv.containers = gone\nreserv.container = gone/a\n";
        read_ini("a", text, &mut said);
        let text = "reserv.containers = \"web, away/e\" ; both\nreserv.container=web/guests;x\n";
        read_ini("b", text, &mut said);
        assert_eq!((said.module.as_deref(), &said.on[..]), (Some("a:2"), &["b:1".to_owned()][..]));
        assert_eq!(said.roots, pairs(&[("web", "b:1"), ("away/e", "b:1")]));
        assert_eq!(said.shares, pairs(&[("web/guests", "b:2")]));
        let text = "[global]\npid = x\n[www]\npm.max_children = 7\n\
                    php_admin_value[reserv.container] = web/$x\n";
        pool("c", text, &mut said);
        assert_eq!(said.later, pairs(&[("web/$x", "c:5")]));
        assert_eq!(said.notes[0].1, "www: at most 7 requests at once");
        read_ini("d", "reserv.containers =\n", &mut said);
        assert!(said.roots.is_empty() && said.on.is_empty());
    }

    #[test]
    fn the_files_that_php_names_are_read() {
        let info = "Loaded Configuration File => /etc/php/php.ini\n\
                    Scan this dir for additional .ini files => /etc/php/conf.d\n\
                    Additional .ini files parsed => /etc/php/conf.d/10-a.ini,\n\
                    /etc/php/conf.d/20-b.ini\n\nPHP API => 20220829\n";
        let files = ["/etc/php/php.ini", "/etc/php/conf.d/10-a.ini", "/etc/php/conf.d/20-b.ini"];
        assert_eq!(ini_files(info), files);
        assert!(ini_files("Loaded Configuration File => (none)\n").is_empty());
    }

    #[test]
    fn what_php_says_against_it_is_passed_on() {
        let text = "[1] NOTICE: PHP message: PHP Warning:  PHP Startup: Unable to load dynamic \
                    library 'php_reserv.so' (tried: /usr/lib/php_reserv.so (no)) in Unknown\n\
                    [1] NOTICE: PHP message: reserv: invalid word \"web//a\" in x\n\
                    [1] NOTICE: PHP message: reserv: there is no /reserv/container\n\
                    [1] NOTICE: configuration file /etc/fpm.conf test is successful\n";
        let wanted = ["PHP cannot load 'php_reserv.so'", "invalid word \"web//a\" in x"];
        assert_eq!(objections(text), wanted);
        assert_eq!(accepted(text).as_deref(), Some(Path::new("/etc/fpm.conf")));
        let text =
            "[1] ERROR: [/x.conf:3] unknown entry 'y'\n[1] ERROR: FPM failed\n[1] ERROR: z\n";
        assert_eq!(refusal(text), "[/x.conf:3] unknown entry 'y'; FPM failed");
        assert_eq!(refusal(""), "it does not say why");
    }

    #[test]
    fn pools_of_included_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let include = format!("[global]\ninclude={}/*.conf\n", folder.path().display());
        fs::write(at("main"), include).unwrap();
        for name in ["b.conf", "a.conf", "c.off"] {
            let text = format!("[{name}]\nphp_admin_value[reserv.container] = web/{name}\n");
            fs::write(at(name), text).unwrap();
        }
        let mut said = Said::default();
        read_pools(&at("main"), &mut said).unwrap();
        let found: Vec<&str> = said.shares.keys().map(String::as_str).collect();
        assert_eq!(found, ["web/a.conf", "web/b.conf"]);
        assert!(read_pools(&at("none"), &mut said).is_err());
    }

    #[test]
    fn a_version_is_two_numbers() {
        for (text, good) in
            [("8.2", true), ("10.11", true), ("8", false), ("8.", false), ("a.b", false)]
        {
            assert_eq!(version(text), good, "{text}");
        }
    }
}
