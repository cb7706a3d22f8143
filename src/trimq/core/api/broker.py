"""The verbs that front-ends may call, grouped by subject. Each checks the caller's rights, then delegates; there is no
logic here."""

from __future__ import annotations

from trimq.config import Settings
from trimq.core.api.acl_entries import AclEntryApi
from trimq.core.api.dynamic_settings import DynamicSettingsApi
from trimq.core.api.exchanges import ExchangeApi
from trimq.core.api.failures import FailureApi
from trimq.core.api.firehose import FirehoseApi
from trimq.core.api.foreign_topics import ForeignTopicApi
from trimq.core.api.groups import GroupApi
from trimq.core.api.limits import LimitApi
from trimq.core.api.namespaces import NamespaceApi
from trimq.core.api.partition_topics import PartitionTopicApi
from trimq.core.api.partitions import PartitionApi
from trimq.core.api.policies import PolicyApi
from trimq.core.api.queues import QueueApi
from trimq.core.api.quotas import QuotaApi
from trimq.core.api.scram_credentials import ScramCredentialApi
from trimq.core.api.tenant_limits import TenantLimitApi
from trimq.core.api.transactions import TransactionApi
from trimq.core.api.users import UserApi
from trimq.core.metadata.cluster import Cluster
from trimq.core.security.access import BROKER, Access, Action, Resource
from trimq.core.write_gate import WriteGate
from trimq.model import Caller
from trimq.storage.io.files import Space


class Broker:
    """`topics`, `partitions`, `groups` and `transactions` serve partition logs; `exchanges`, `queues`, `policies` and
    `firehose` serve AMQP queues; `namespaces`, `failures`, `users`, `acl_entries`, `quotas`, `limits`, `tenant_limits`
    and `scram_credentials` serve all layouts; `foreign_topics` shows topics of one layout to clients of the others;
    `dynamic_settings` are the broker settings that Kafka clients can change live. Commit-log topics are reached through
    `CommitLogApi` (`core/api/commit_log.py`), since the commit log may be closed."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        access: Access,
        gate: WriteGate,
        topics: PartitionTopicApi,
        partitions: PartitionApi,
        groups: GroupApi,
        transactions: TransactionApi,
        exchanges: ExchangeApi,
        queues: QueueApi,
        policies: PolicyApi,
        namespaces: NamespaceApi,
        failures: FailureApi,
        quotas: QuotaApi,
        scram_credentials: ScramCredentialApi,
        users: UserApi,
        acl_entries: AclEntryApi,
        dynamic_settings: DynamicSettingsApi,
        limits: LimitApi,
        firehose: FirehoseApi,
        tenant_limits: TenantLimitApi,
        foreign_topics: ForeignTopicApi,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.topics = topics
        self.partitions = partitions
        self.groups = groups
        self.transactions = transactions
        self.exchanges = exchanges
        self.queues = queues
        self.policies = policies
        self.namespaces = namespaces
        self.failures = failures
        self.quotas = quotas
        self.scram_credentials = scram_credentials
        self.users = users
        self.acl_entries = acl_entries
        self.dynamic_settings = dynamic_settings
        self.limits = limits
        self.firehose = firehose
        self.tenant_limits = tenant_limits
        self.foreign_topics = foreign_topics
        self.audit = access.audit
        self._access = access
        self._gate = gate

    def require(self, caller: Caller, action: Action, resource: Resource) -> None:
        """Raises AccessDenied unless the caller may perform this action. For requests that no verb serves."""
        self._access.require(caller, action, resource)

    def allowed(self, caller: Caller, action: Action, resource: Resource) -> bool:
        return self._access.allowed(caller, action, resource)

    def require_administrator(self, caller: Caller) -> None:
        """Raises a refusal if the caller may not administer the broker."""
        self._access.require(caller, Action.ADMINISTER, BROKER)

    def space(self, caller: Caller) -> Space:
        """Space on the disk of the data folder."""
        self._access.require(caller, Action.DESCRIBE, BROKER)
        return self._gate.space()
