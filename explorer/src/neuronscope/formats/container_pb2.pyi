from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Container(_message.Message):
    __slots__ = ("magic", "kind", "version", "session", "tables")
    MAGIC_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    magic: str
    kind: str
    version: int
    session: Session
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    def __init__(self, magic: _Optional[str] = ..., kind: _Optional[str] = ..., version: _Optional[int] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[Table, _Mapping]]] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("name", "rows", "arrow_ipc", "crc32")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_IPC_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: int
    arrow_ipc: bytes
    crc32: int
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[int] = ..., arrow_ipc: _Optional[bytes] = ..., crc32: _Optional[int] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("producer", "producer_version", "emulated", "model_version", "target", "target_hash", "instance_id", "process_id", "session_id", "lnc", "modes", "start_ns", "stop_ns", "dropped_events", "unfinished_executions", "host_model", "device_cost_ns", "device_cost_status")
    class DroppedEventsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class DeviceCostNsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DeviceCostStatusEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_VERSION_FIELD_NUMBER: _ClassVar[int]
    EMULATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TARGET_HASH_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LNC_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    STOP_NS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    HOST_MODEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_COST_NS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_COST_STATUS_FIELD_NUMBER: _ClassVar[int]
    producer: str
    producer_version: str
    emulated: bool
    model_version: str
    target: str
    target_hash: str
    instance_id: str
    process_id: int
    session_id: int
    lnc: int
    modes: _containers.RepeatedScalarFieldContainer[str]
    start_ns: int
    stop_ns: int
    dropped_events: _containers.ScalarMap[int, int]
    unfinished_executions: int
    host_model: str
    device_cost_ns: _containers.ScalarMap[str, int]
    device_cost_status: _containers.ScalarMap[str, str]
    def __init__(self, producer: _Optional[str] = ..., producer_version: _Optional[str] = ..., emulated: _Optional[bool] = ..., model_version: _Optional[str] = ..., target: _Optional[str] = ..., target_hash: _Optional[str] = ..., instance_id: _Optional[str] = ..., process_id: _Optional[int] = ..., session_id: _Optional[int] = ..., lnc: _Optional[int] = ..., modes: _Optional[_Iterable[str]] = ..., start_ns: _Optional[int] = ..., stop_ns: _Optional[int] = ..., dropped_events: _Optional[_Mapping[int, int]] = ..., unfinished_executions: _Optional[int] = ..., host_model: _Optional[str] = ..., device_cost_ns: _Optional[_Mapping[str, int]] = ..., device_cost_status: _Optional[_Mapping[str, str]] = ...) -> None: ...
