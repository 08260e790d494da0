"""Start everything and open the page. Options come from the command line; there is no logic here."""

import argparse
import errno
import socket
import sys

MIN_PYTHON = (3, 11)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the SAKURA page with its cloud and one local device.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=7860, help="port of the page (default: 7860)")
    parser.add_argument("--bridge-host", default="127.0.0.1", help="address for devices (default: this machine only)")
    parser.add_argument("--bridge-port", type=int, default=0, help="port for devices (default: any free one)")
    parser.add_argument("--certificate", help="PEM file with certificate and key; devices then connect with wss")
    options = parser.parse_args()
    if not 0 < options.port < 65536:
        sys.exit(f"{options.port} is no port; choose one from 1 to 65535 with --port.")
    if not 0 <= options.bridge_port < 65536:
        sys.exit(f"{options.bridge_port} is no port; choose one from 1 to 65535 with --bridge-port.")
    if sys.version_info < MIN_PYTHON:
        sys.exit(f"SAKURA needs Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer; this is {sys.version.split()[0]}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except socket.gaierror:
            sys.exit(f"There is no address {options.host}; use 127.0.0.1, or 0.0.0.0 for all of this machine's.")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                sys.exit(f"{options.host}:{options.port} cannot be used ({error.strerror}); choose other ones.")
            sys.exit(
                f"Port {options.port} of {options.host} is taken; stop what uses it, or choose another with --port."
            )
    try:
        # The roles start while the page's libraries load.
        from device_bridge.addresses import tls_from
        from sakura.errors import UserError
        from sakura.lab.service import Lab
        from sakura.studio import LocalRoles, Studio
    except ModuleNotFoundError as error:
        sys.exit(f"The package {error.name} is missing; run `make install`.")
    print("Starting the cloud, the device and the page", flush=True)  # noqa: T201
    try:
        tls = tls_from(options.certificate) if options.certificate else None
        studio = Studio(host=options.bridge_host, hub_port=options.bridge_port, tls=tls)
    except UserError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(
            f"Devices cannot connect at {options.bridge_host}:{options.bridge_port} ({error.strerror}); choose other "
            "ones with --bridge-host and --bridge-port."
        )
    try:
        with LocalRoles(studio, wait=False) as roles, Lab(studio.library, studio.busy) as lab:
            from ui.page import build_page, launch_options

            page = build_page(studio, lab)
            roles.wait_ready()
            page.launch(
                server_name=options.host,
                server_port=options.port,
                quiet=True,
                prevent_thread_lock=True,
                **launch_options(),
            )
            print(f"SAKURA is ready: http://{options.host}:{options.port}", flush=True)  # noqa: T201
            page.block_thread()
    except UserError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
    finally:
        studio.close()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
