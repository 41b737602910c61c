# SPDX-License-Identifier: MIT OR Apache-2.0
"""The main job: four companies' web servers on one CPU, without and with reservations (Eclipse/BSD
§4).

    plan         what is run: sites, clients, windows
    stats        mean and 95 % confidence interval
    servers      four Apache servers with their own configuration, ports and logs
    clients      closed loops of wrk
    access_log   exact counts of completed requests, from the servers' logs
    reservations the product: up, mk, set, run, down
    experiment   one half after the other; makes the raw data
    judge        raw data -> table and verdict. Pure
    plot         raw data -> SVG. Pure
    report       prints and saves
"""
