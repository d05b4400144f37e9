"""What the registry answers, one function for each path and method."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request

from headgate.registry import errors
from headgate.registry.database import Database, StoredSchema, Transaction, Version
from headgate.registry.http import bodies
from headgate.registry.http.bodies import ConfigBody, ModeBody, SchemaBody, flag, number, read_body
from headgate.registry.schemas import Kind, Level
from headgate.registry.settings import ALL, Mode, SettingsStore
from headgate.registry.subjects import Found, Subjects, chosen, resolve

__all__ = ["Answer", "Answers"]

Answer = Callable[..., Awaitable[Any]]


class Answers:
    """The registry of one database. Each answer is a value to be written as JSON, or RefusedError is raised."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subjects = Subjects(database)
        self._settings = SettingsStore(database)
        self.table: Sequence[tuple[str, str, Answer]] = (
            ("GET", "", self.root),
            ("GET", "contexts", self.contexts),
            ("GET", "schemas", self.all_schemas),
            ("GET", "schemas/types", self.types),
            ("GET", "schemas/ids/*", self.schema),
            ("GET", "schemas/ids/*/schema", self.schema_text),
            ("GET", "schemas/ids/*/subjects", self.subjects_of_schema),
            ("GET", "schemas/ids/*/versions", self.versions_of_schema),
            ("GET", "subjects", self.subjects),
            ("POST", "subjects/*", self.look_up),
            ("DELETE", "subjects/*", self.delete),
            ("GET", "subjects/*/versions", self.versions),
            ("POST", "subjects/*/versions", self.register),
            ("GET", "subjects/*/versions/*", self.version),
            ("DELETE", "subjects/*/versions/*", self.delete),
            ("GET", "subjects/*/versions/*/schema", self.version_text),
            ("GET", "subjects/*/versions/*/referencedby", self.referenced_by),
            ("POST", "compatibility/subjects/*/versions", self.test),
            ("POST", "compatibility/subjects/*/versions/*", self.test),
            ("GET", "config", self.config),
            ("GET", "config/*", self.config),
            ("PUT", "config", self.set_config),
            ("PUT", "config/*", self.set_config),
            ("DELETE", "config", self.forget_config),
            ("DELETE", "config/*", self.forget_config),
            ("GET", "mode", self.mode),
            ("GET", "mode/*", self.mode),
            ("PUT", "mode", self.set_mode),
            ("PUT", "mode/*", self.set_mode),
            ("DELETE", "mode", self.forget_mode),
            ("DELETE", "mode/*", self.forget_mode),
        )

    async def root(self, _: Request) -> Any:
        return {}

    async def contexts(self, _: Request) -> Any:
        return ["."]

    async def types(self, _: Request) -> Any:
        return [Kind.JSON, Kind.PROTOBUF, Kind.AVRO]

    async def subjects(self, request: Request) -> Any:
        deleted, only_deleted = flag(request, "deleted"), flag(request, "deletedOnly")
        values = _page(request) | {"deleted": deleted or only_deleted, "only_deleted": only_deleted}
        values["prefix"] = _plain_prefix(request.query_params.get("subjectPrefix", ""))
        return [row[0] for row in _whole(await self._rows("subjects", values))]

    async def all_schemas(self, request: Request) -> Any:
        values = _page(request) | {"deleted": flag(request, "deleted"), "latest_only": flag(request, "latestOnly")}
        values["prefix"] = _plain_prefix(request.query_params.get("subjectPrefix", ""))
        async with self._database.transaction() as reading:
            rows = _whole(await reading.rows("all_versions", values))
            if sum(size for *_, size in rows) > bodies.MOST_ANSWER:
                raise errors.bad_request("the answer is too large: ask with limit and offset, or subjectPrefix")
            schemas = await reading.schemas([schema_id for _, _, schema_id, _ in rows])
        return [
            bodies.found_answer(Found(subject, Version(version, schema_id, False), schemas[schema_id]))
            for subject, version, schema_id, _ in rows
        ]

    async def schema(self, request: Request, schema_id: str) -> Any:
        async with self._database.transaction() as reading:
            stored = await _schema_by_id(reading, schema_id)
            answer = bodies.schema_answer(stored, await _text(reading, request, stored))
            if flag(request, "fetchMaxId"):
                answer["maxId"] = (await reading.rows("last_id"))[0][0]
        return answer

    async def schema_text(self, request: Request, schema_id: str) -> Any:
        async with self._database.transaction() as reading:
            return Text(await _text(reading, request, await _schema_by_id(reading, schema_id)))

    async def subjects_of_schema(self, request: Request, schema_id: str) -> Any:
        return list(dict.fromkeys(subject for subject, _ in await self._places(request, schema_id)))

    async def versions_of_schema(self, request: Request, schema_id: str) -> Any:
        return [{"subject": each, "version": version} for each, version in await self._places(request, schema_id)]

    async def _places(self, request: Request, schema_id: str) -> list[Any]:
        values = _page(request) | {"id": _id(schema_id), "deleted": flag(request, "deleted")}
        async with self._database.transaction() as reading:
            await _schema_by_id(reading, schema_id)
            return _whole(await reading.rows("places", values))

    async def versions(self, request: Request, subject: str) -> Any:
        async with self._database.transaction() as reading:
            return [each.number for each in await _versions(reading, request, subject)]

    async def version(self, request: Request, subject: str, version: str) -> Any:
        async with self._database.transaction() as reading:
            found = await _find(reading, request, subject, version)
            return bodies.found_answer(found, await _text(reading, request, found.schema))

    async def version_text(self, request: Request, subject: str, version: str) -> Any:
        async with self._database.transaction() as reading:
            found = await _find(reading, request, subject, version)
            return Text(await _text(reading, request, found.schema))

    async def referenced_by(self, request: Request, subject: str, version: str) -> Any:
        async with self._database.transaction() as reading:
            found = await _find(reading, request, subject, version)
            values = {"subject": subject, "versions": [found.version.number], "deleted": flag(request, "deleted")}
            return [schema_id for _, schema_id in await reading.rows("referenced_by", values)]

    async def register(self, request: Request, subject: str) -> Any:
        body = await read_body(request, SchemaBody)
        return {"id": await self._subjects.register(subject, _draft(request, body))}

    async def look_up(self, request: Request, subject: str) -> Any:
        body = await read_body(request, SchemaBody)
        found = await self._subjects.find(subject, _draft(request, body), deleted=flag(request, "deleted"))
        return bodies.found_answer(found)

    async def delete(self, request: Request, subject: str, version: str | None = None) -> Any:
        gone = await self._subjects.delete(subject, version, permanent=flag(request, "permanent"))
        return gone if version is None else gone[0]

    async def test(self, request: Request, subject: str, version: str | None = None) -> Any:
        body = await read_body(request, SchemaBody)
        reasons = await self._subjects.test(subject, _draft(request, body), version)
        answer: dict[str, Any] = {"is_compatible": not reasons}
        return answer | ({"messages": reasons} if flag(request, "verbose") else {})

    async def config(self, request: Request, subject: str = ALL) -> Any:
        settings = await self._settings.read(subject)
        if subject != ALL and settings.own_level is None and not flag(request, "defaultToGlobal"):
            text = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise errors.RefusedError(40408, text)
        return {"compatibilityLevel": settings.level}

    async def set_config(self, request: Request, subject: str = ALL) -> Any:
        body = await read_body(request, ConfigBody)
        given = body.compatibility or body.compatibility_level or ""
        if given.upper() not in Level.__members__:
            allowed = ", ".join(Level)
            raise errors.RefusedError(42203, f"Invalid compatibility level. Valid values are {allowed}")
        await self._settings.set_level(subject, Level(given.upper()))
        return {"compatibility": given.upper()}

    async def forget_config(self, _: Request, subject: str = ALL) -> Any:
        before = await self._settings.set_level(subject, None)
        if before is None and subject != ALL:
            text = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise errors.RefusedError(40408, text)
        return {"compatibilityLevel": before or Level.BACKWARD}

    async def mode(self, request: Request, subject: str = ALL) -> Any:
        settings = await self._settings.read(subject)
        if subject != ALL and settings.own_mode is None and not flag(request, "defaultToGlobal"):
            raise errors.RefusedError(40409, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": settings.mode}

    async def set_mode(self, request: Request, subject: str = ALL) -> Any:
        body = await read_body(request, ModeBody)
        if body.mode not in Mode.__members__:
            raise errors.RefusedError(42204, f"Invalid mode. Valid values are {', '.join(Mode)}")
        await self._settings.set_mode(subject, Mode(body.mode), force=flag(request, "force"))
        return {"mode": body.mode}

    async def forget_mode(self, _: Request, subject: str = ALL) -> Any:
        before = await self._settings.set_mode(subject, None)
        if before is None and subject != ALL:
            raise errors.RefusedError(40409, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": before or Mode.READWRITE}

    async def _rows(self, name: str, values: dict[str, Any]) -> list[Any]:
        async with self._database.transaction() as reading:
            return await reading.rows(name, values)


class Text(str):
    """A schema that is the whole answer, as it is kept."""

    __slots__ = ()


def _page(request: Request) -> dict[str, Any]:
    limit = number(request, "limit", bodies.MOST_ROWS + 1)
    return {"offset": number(request, "offset", 0), "limit": min(limit, bodies.MOST_ROWS + 1)}


def _whole(rows: list[Any]) -> list[Any]:
    """A list that was cut without a word would be taken for all there is."""
    if len(rows) > bodies.MOST_ROWS:
        raise errors.bad_request(f"there are more than {bodies.MOST_ROWS:,}: ask with limit and offset")
    return rows


def _plain_prefix(prefix: str) -> str:
    """Clients ask for all contexts like this, and here is one."""
    return "" if prefix in (":*:", ":.:") else prefix


def _draft(request: Request, body: SchemaBody) -> Any:
    return bodies.draft_of(body, is_normalized=flag(request, "normalize"))


def _id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:11]) < 1 << 31):
        raise errors.no_schema(text[:50])
    return int(text)


async def _schema_by_id(reading: Transaction, text: str) -> StoredSchema:
    number_ = _id(text)
    found = await reading.schemas([number_])
    if number_ not in found:
        raise errors.no_schema(number_)
    return found[number_]


async def _text(reading: Transaction, request: Request, stored: StoredSchema) -> str:
    if request.query_params.get("format", "") != "serialized" or stored.kind != Kind.PROTOBUF:
        return stored.text
    references = await resolve(reading, stored.references)
    return await asyncio.to_thread(bodies.serialized, stored, references)


async def _versions(reading: Transaction, request: Request, subject: str) -> list[Version]:
    deleted = flag(request, "deleted")
    versions = [each for each in await reading.versions(subject) if deleted or not each.is_deleted]
    if not versions:
        raise errors.no_subject(subject)
    return versions


async def _find(reading: Transaction, request: Request, subject: str, version: str) -> Found:
    found = chosen(subject, await _versions(reading, request, subject), version)
    schemas = await reading.schemas([found.schema_id])
    return Found(subject, found, schemas[found.schema_id])
