"""Topics mirrored to another Kafka, and from one: batches as they are, an exact map of offsets, offsets of groups.

`client` speaks to the other cluster, `links` keeps in PostgreSQL what is known of it, `mirror` sends the batches of one
partition, `groups` moves the offsets of consumer groups along, `status` tells how far all that is. `cutover` moves the
clients of a topic over for good.
"""

from __future__ import annotations
