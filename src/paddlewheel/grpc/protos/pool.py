"""The descriptor pool of this package's protocol buffers.

It is not the process's default one: clients' libraries register messages of the same full names there, and a process
that uses such a client beside this server must not fail for it.
"""

from __future__ import annotations

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
