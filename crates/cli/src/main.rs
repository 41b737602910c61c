// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reserv`: a thin face of the files under /reserv and of reservd's control socket.

fn main() -> std::process::ExitCode {
    reserv_cli::main()
}
