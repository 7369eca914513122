"""TLS of a gateway: PEM files to a context, or one line that says which file is wrong."""

import ssl
from pathlib import Path

from roamcast.errors import InputError


def server_context(
    table: str, base: Path, certificate: str, key: str = "", client_authority: str = ""
) -> ssl.SSLContext:
    """File names are relative to `base`; `table` is the one of the node's file that has them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    chain, secret = base / certificate, base / (key or certificate)
    try:
        context.load_cert_chain(chain, secret)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"{table}.tls_certificate", f"{chain}, {secret}: {error}") from None
    if client_authority:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_authority)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"{table}.tls_client_authority", f"{client_authority}: {error}") from None
    return context
