"""Registering, looking up and deleting: what may follow what, decided with one state of the database.

Parsing and comparing take time, so they are done before the lock and in a thread. Behind the lock it is looked whether
what was decided from is still there; if not, all begins anew.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from headgate.registry import errors
from headgate.registry.database import POOL_SIZE, Database, Reference, StoredSchema, Transaction, Version
from headgate.registry.schemas import InvalidSchemaError, Kind, Level, Referenced, Schema, incompatibilities, parse
from headgate.registry.schemas.bounds import MOST_REFERENCES
from headgate.registry.settings import Mode, Settings, read_settings

__all__ = ["Draft", "Found", "Subjects"]

_TRIES = 50
_AT_ONCE = POOL_SIZE // 2
_COMPARE_S = 60.0


@dataclass(frozen=True, slots=True)
class Draft:
    """A schema as a client sends it; with `schema_id` and `version` in the mode IMPORT only."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    is_normalized: bool = False
    schema_id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A version of a subject with its schema."""

    subject: str
    version: Version
    schema: StoredSchema


@dataclass(eq=False, slots=True)
class Subjects:
    """The subjects of a database."""

    database: Database
    # Who compares keeps a connection meanwhile; the others are for those who only read.
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def register(self, subject: str, draft: Draft) -> int:
        """Make a schema the next version of a subject, unless it has it; return the schema's id."""
        async with self._turns:
            return await self._register(subject, draft)

    async def _register(self, subject: str, draft: Draft) -> int:
        for _ in range(_TRIES):
            async with self.database.transaction() as reading:
                stamp = await reading.stamp(subject)
                settings = await read_settings(reading, subject)
                versions = await reading.versions(subject)
                schema, identity = await self._parse(reading, draft)
                if (known := await _known(reading, versions, identity)) is not None and draft.schema_id is None:
                    return known.schema_id
                _check_mode(subject, settings, draft)
                if settings.mode is not Mode.IMPORT:
                    await self._check(reading, subject, schema, settings.level, versions)
            async with self.database.transaction(writes=True) as writing:
                await writing.lock()
                if await writing.stamp(subject) == stamp and await _are_there(writing, draft.references):
                    return await _add(writing, subject, draft, schema, identity, versions)
        raise errors.RefusedError(50002, f"Too many others register schemas for the subject '{subject}': try again")

    async def find(self, subject: str, draft: Draft, *, deleted: bool = False) -> Found:
        """Return the version of a subject that has this schema."""
        async with self._turns, self.database.transaction() as reading:
            versions = await reading.versions(subject)
            if not any(deleted or not each.is_deleted for each in versions):
                raise errors.no_subject(subject)
            _, identity = await self._parse(reading, draft)
            version = await _known(reading, versions, identity, deleted=deleted)
            if version is None:
                raise errors.no_schema()
            schemas = await reading.schemas([version.schema_id])
            return Found(subject, version, schemas[version.schema_id])

    async def test(self, subject: str, draft: Draft, version: str | None) -> list[str]:
        """Return why a schema could not be registered; with a version, why it does not go with that one."""
        async with self._turns, self.database.transaction() as reading:
            versions = [each for each in await reading.versions(subject) if not each.is_deleted]
            if version is not None:
                versions = [chosen(subject, versions, version)]
            schema, _ = await self._parse(reading, draft)
            settings = await read_settings(reading, subject)
            reasons = await self._reasons(reading, schema, settings.level, versions)
        return [*reasons, f"{{compatibility: '{settings.level.value}'}}"] if reasons else []

    async def delete(self, subject: str, version: str | None, *, permanent: bool) -> list[int]:
        """Delete a version or all; softly first, then for good. Return the numbers of what is deleted."""
        async with self.database.transaction(writes=True) as writing:
            await writing.lock()
            settings = await read_settings(writing, subject)
            if settings.mode is Mode.READONLY:
                raise errors.not_permitted(f"Subject {subject} is in read-only mode")
            versions = _to_delete(subject, await writing.versions(subject), version, permanent)
            values = {"subject": subject, "versions": [each.number for each in versions]}
            if referring := await writing.rows("referenced_by", values | {"deleted": permanent}):
                which = f"{{magic=1,keytype=SCHEMA,subject={subject},version={referring[0][0]}}}"
                raise errors.RefusedError(42206, f"One or more references exist to the schema {which}.")
            if permanent:
                await writing.rows("drop_versions", values)
                await writing.rows("drop_orphans", {"ids": [each.schema_id for each in versions]})
            else:
                await writing.rows("set_deleted", values)
            if permanent and not await writing.versions(subject):
                await writing.rows("forget_settings", {"subject": subject})
            return [each.number for each in versions]

    async def _parse(self, reading: Transaction, draft: Draft) -> tuple[Schema, bytes]:
        references = await resolve(reading, draft.references)
        try:
            schema = await asyncio.to_thread(
                parse, draft.kind, draft.text, references, is_normalized=draft.is_normalized
            )
        except InvalidSchemaError as error:
            raise errors.invalid_schema(f"{error.message} ({error.remedy})") from None
        return schema, _identity(schema, draft.references)

    async def _check(
        self, reading: Transaction, subject: str, schema: Schema, level: Level, versions: Sequence[Version]
    ) -> None:
        there = [each for each in versions if not each.is_deleted]
        if reasons := await self._reasons(reading, schema, level, there):
            raise errors.incompatible(subject, [*reasons, f"{{compatibility: '{level.value}'}}"])

    async def _reasons(
        self, reading: Transaction, schema: Schema, level: Level, versions: Sequence[Version]
    ) -> list[str]:
        """Look at the latest version first: if it forbids it, no others are read."""
        if level is Level.NONE:
            return []
        began = time.monotonic()
        for version in reversed(versions if level.is_transitive else versions[-1:]):
            if time.monotonic() - began > _COMPARE_S:
                raise errors.RefusedError(50002, "Comparing with all versions takes too long: delete some of them")
            try:
                old = await self._stored(reading, version.schema_id)
            except InvalidSchemaError as error:
                return [f"version {version.number} cannot be read: {error.message}"]
            found = await asyncio.to_thread(incompatibilities, level, schema, [(version.number, old)])
            if found:
                return [str(each) for each in found[:20]]
        return []

    async def _stored(self, reading: Transaction, schema_id: int) -> Schema:
        stored = (await reading.schemas([schema_id]))[schema_id]
        references = await resolve(reading, stored.references)
        return await asyncio.to_thread(parse, Kind(stored.kind), stored.text, references)


async def resolve(reading: Transaction, references: Sequence[Reference]) -> list[Referenced]:
    """Return the schemas that these lead to, and those that they lead to: each after those it needs."""
    found: dict[tuple[str, int, str], Referenced] = {}
    names: dict[str, tuple[str, int]] = {}

    async def follow(each: Reference) -> None:
        key = (each.subject, each.version, each.name)
        if key in found:
            return
        if names.setdefault(each.name, key[:2]) != key[:2]:
            raise errors.invalid_schema(f"the name {each.name} stands for two different schemas")
        if len(names) > MOST_REFERENCES:
            raise errors.invalid_schema(f"more than {MOST_REFERENCES} references are followed from it")
        stored = await _referenced(reading, each)
        for inner in stored.references:
            await follow(inner)
        found[key] = Referenced(each.name, stored.text)

    for reference in references:
        await follow(reference)
    return list(found.values())


async def _referenced(reading: Transaction, reference: Reference) -> StoredSchema:
    versions = [each for each in await reading.versions(reference.subject) if each.number == reference.version]
    if not versions:
        raise errors.invalid_schema(f"the reference {reference.name} leads to no version of {reference.subject}")
    return (await reading.schemas([versions[0].schema_id]))[versions[0].schema_id]


def _identity(schema: Schema, references: Sequence[Reference]) -> bytes:
    """One text that refers to other schemas is another schema."""
    listed = json.dumps([[each.name, each.subject, each.version] for each in references])
    return sha256(schema.identity + listed.encode()).digest()


async def _known(
    reading: Transaction, versions: Sequence[Version], identity: bytes, *, deleted: bool = False
) -> Version | None:
    rows = await reading.rows("schema_by_identity", {"identity": identity})
    there = [each for each in versions if rows and each.schema_id == rows[0][0] and (deleted or not each.is_deleted)]
    return there[-1] if there else None


def _check_mode(subject: str, settings: Settings, draft: Draft) -> None:
    if settings.mode is Mode.READONLY:
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")
    if settings.mode is Mode.READWRITE and (draft.schema_id is not None or draft.version is not None):
        raise errors.not_permitted(f"Subject {subject} is not in import mode")


async def _are_there(writing: Transaction, references: Sequence[Reference]) -> bool:
    """Refuse a reference to a deleted version. None is deleted meanwhile: both wait for the same lock."""
    for reference in references:
        versions = await writing.versions(reference.subject)
        if not any(each.number == reference.version and not each.is_deleted for each in versions):
            raise errors.invalid_schema(f"the reference {reference.name} leads to a version that is deleted")
    return True


async def _add(
    writing: Transaction, subject: str, draft: Draft, schema: Schema, identity: bytes, versions: Sequence[Version]
) -> int:
    number = draft.version or max((each.number for each in versions), default=0) + 1
    if any(each.number == number and not each.is_deleted for each in versions):
        raise errors.not_permitted(f"Version {number} of subject {subject} is there already")
    schema_id = await _schema_id(writing, draft, schema, identity)
    await writing.rows("add_version", {"subject": subject, "version": number, "schema_id": schema_id})
    return schema_id


async def _schema_id(writing: Transaction, draft: Draft, schema: Schema, identity: bytes) -> int:
    """The id that the schema has, or a new one; in the mode IMPORT the one that was asked for."""
    rows = await writing.rows("schema_by_identity", {"identity": identity})
    if rows:
        if draft.schema_id not in (None, rows[0][0]):
            raise errors.not_permitted(f"The schema is there with the id {rows[0][0]}")
        return int(rows[0][0])
    if draft.schema_id is None:
        ((schema_id,),) = await writing.rows("next_id")
    else:
        schema_id = draft.schema_id
        if await writing.schemas([schema_id]):
            raise errors.not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
        await writing.rows("note_id", {"id": schema_id})
    values = {"id": schema_id, "kind": schema.kind.value, "body": schema.text, "identity": identity}
    await writing.rows("add_schema", values)
    for position, reference in enumerate(draft.references):
        await writing.rows("add_reference", {"schema_id": schema_id, "position": position} | reference.as_dict())
    return int(schema_id)


def chosen(subject: str, versions: Sequence[Version], wanted: str) -> Version:
    """Return the version of this number, or the latest."""
    if wanted not in ("latest", "-1") and not (wanted.isascii() and wanted.isdecimal() and 0 < int(wanted) < 1 << 31):
        raise errors.invalid_version(wanted)
    if not versions:
        raise errors.no_subject(subject)
    if wanted in ("latest", "-1"):
        return versions[-1]
    for version in versions:
        if version.number == int(wanted):
            return version
    raise errors.no_version(wanted)


def _to_delete(subject: str, versions: Sequence[Version], wanted: str | None, permanent: bool) -> list[Version]:
    there = [each for each in versions if not each.is_deleted]
    if not versions:
        raise errors.no_subject(subject)
    if wanted is None:
        if permanent and there:
            text = f"Subject '{subject}' was not deleted first before being permanently deleted"
            raise errors.RefusedError(40405, text)
        if not permanent and not there:
            text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
            raise errors.RefusedError(40404, text)
        return list(versions if permanent else there)
    version = chosen(subject, there if wanted in ("latest", "-1") else versions, wanted)
    if permanent and not version.is_deleted:
        text = f"Subject '{subject}' Version {version.number} was not deleted first before being permanently deleted"
        raise errors.RefusedError(40407, text)
    if not permanent and version.is_deleted:
        text = f"Subject '{subject}' Version {version.number} was soft deleted.Set permanent=true to delete permanently"
        raise errors.RefusedError(40406, text)
    return [version]
