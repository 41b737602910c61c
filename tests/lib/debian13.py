# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian 13's nginx, which tests/lib/nginx13 has fetched: tests/lib/nginx.py starts it after this."""
import os
import subprocess

from live import ROOT, in_memory, skip


def chosen(*programs):
    """The folder where it is; its `programs` are read too. Not run where nobody has fetched it."""
    made = os.path.join(ROOT, "target", "tests", "nginx", "ngx_http_reserv_module.so")
    if not os.path.exists(made):
        skip("tests/lib/nginx13 has not been run here: there is no nginx with HTTP/3")
    told = subprocess.run([f"{ROOT}/vm/fetch", "nginx"], check=True, capture_output=True, text=True)
    folder = told.stdout.strip()
    libraries = os.scandir(f"{folder}/usr/lib/x86_64-linux-gnu")
    in_memory(*(file.path for file in libraries if ".so" in file.name and file.is_file()), made,
              f"{folder}/loaders/nginx", *(f"{folder}/{name}" for name in ("usr/sbin/nginx", *programs)))
    os.environ.update(NGINX_PROGRAM=f"{folder}/bin/nginx", NGINX_MODULE=made)
    return folder
