//! The APIs of Kafka: names, versions with flexible headers, and positions of error codes.
//!
//! From the message definitions of Apache Kafka 4.1 (`clients/src/main/resources/common/message`);
//! versions that Kafka 4 removed are included.

use std::ops::RangeInclusive;

/// Highest version of an API that is plausible. Newer brokers have versions above
/// [`KafkaApi::version_max`].
pub(super) const PLAUSIBLE_VERSION_MAX: i16 = 40;

/// Highest key of an API that is plausible.
const PLAUSIBLE_KEY_MAX: i16 = 127;

/// Kind of request.
pub(super) struct KafkaApi {
    pub(super) key: i16,
    pub(super) name: &'static str,
    /// First version whose headers and bodies have tagged fields.
    pub(super) flexible_from: i16,
    /// Last version whose body is known.
    pub(super) version_max: i16,
    pub(super) error: ErrorPosition,
}

/// Position of the error code in a response.
pub(super) struct ErrorPosition {
    /// Versions whose response starts with the error code, or has it after the throttle time; -1 if
    /// there is none.
    pub(super) versions: RangeInclusive<i16>,
    /// First version with a throttle time before it.
    pub(super) throttle_from: i16,
}

impl KafkaApi {
    /// The API of a key.
    pub(super) fn of_key(key: i16) -> Option<&'static KafkaApi> {
        // Known keys have no gaps.
        match APIS.get(usize::try_from(key).ok()?) {
            None if key <= PLAUSIBLE_KEY_MAX => Some(&UNKNOWN_API),
            api => api,
        }
    }

    pub(super) fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// Whether the header of the response has tagged fields. Clients send ApiVersions before they
    /// know the versions of the broker; its response has the oldest header.
    pub(super) fn is_response_header_flexible(&self, version: i16) -> bool {
        self.is_flexible(version) && self.key != API_VERSIONS
    }

    /// Whether the broker delays the response until other members or records arrive.
    pub(super) fn is_wait(&self) -> bool {
        matches!(self.key, JOIN_GROUP | SYNC_GROUP | SHARE_FETCH)
    }
}

pub(super) const PRODUCE: i16 = 0;
pub(super) const FETCH: i16 = 1;
pub(super) const METADATA: i16 = 3;
const JOIN_GROUP: i16 = 11;
const SYNC_GROUP: i16 = 14;
pub(super) const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
pub(super) const SASL_AUTHENTICATE: i16 = 36;
const SHARE_FETCH: i16 = 78;

const NO_ERROR: ErrorPosition = after_throttle(0, -1..=-1);
const FIRST: ErrorPosition = ErrorPosition { versions: 0..=i16::MAX, throttle_from: i16::MAX };
const AFTER_THROTTLE: ErrorPosition = after_throttle(0, 0..=i16::MAX);

const fn after_throttle(throttle_from: i16, versions: RangeInclusive<i16>) -> ErrorPosition {
    ErrorPosition { versions, throttle_from }
}

const fn api(
    key: i16,
    name: &'static str,
    flexible_from: i16,
    version_max: i16,
    error: ErrorPosition,
) -> KafkaApi {
    KafkaApi { key, name, flexible_from, version_max, error }
}

/// An API of a newer broker.
static UNKNOWN_API: KafkaApi = api(-1, "Unknown", 0, -1, NO_ERROR);

/// All APIs by key.
static APIS: [KafkaApi; 93] = [
    api(0, "Produce", 9, 13, NO_ERROR),
    api(1, "Fetch", 12, 18, after_throttle(0, 7..=i16::MAX)),
    api(2, "ListOffsets", 6, 10, NO_ERROR),
    api(3, "Metadata", 9, 13, NO_ERROR),
    api(4, "LeaderAndIsr", 4, 7, NO_ERROR),
    api(5, "StopReplica", 2, 4, NO_ERROR),
    api(6, "UpdateMetadata", 6, 8, NO_ERROR),
    api(7, "ControlledShutdown", 3, 3, NO_ERROR),
    api(8, "OffsetCommit", 8, 9, NO_ERROR),
    api(9, "OffsetFetch", 6, 9, NO_ERROR),
    api(10, "FindCoordinator", 3, 6, after_throttle(1, 0..=3)),
    api(11, "JoinGroup", 6, 9, after_throttle(2, 0..=i16::MAX)),
    api(12, "Heartbeat", 4, 4, after_throttle(1, 0..=i16::MAX)),
    api(13, "LeaveGroup", 4, 5, after_throttle(1, 0..=i16::MAX)),
    api(14, "SyncGroup", 4, 5, after_throttle(1, 0..=i16::MAX)),
    api(15, "DescribeGroups", 5, 6, NO_ERROR),
    api(16, "ListGroups", 3, 5, after_throttle(1, 0..=i16::MAX)),
    api(17, "SaslHandshake", i16::MAX, 1, FIRST),
    api(18, "ApiVersions", 3, 4, FIRST),
    api(19, "CreateTopics", 5, 7, NO_ERROR),
    api(20, "DeleteTopics", 4, 6, NO_ERROR),
    api(21, "DeleteRecords", 2, 2, NO_ERROR),
    api(22, "InitProducerId", 2, 5, AFTER_THROTTLE),
    api(23, "OffsetForLeaderEpoch", 4, 4, NO_ERROR),
    api(24, "AddPartitionsToTxn", 3, 5, after_throttle(0, 4..=i16::MAX)),
    api(25, "AddOffsetsToTxn", 3, 4, AFTER_THROTTLE),
    api(26, "EndTxn", 3, 5, AFTER_THROTTLE),
    api(27, "WriteTxnMarkers", 0, 1, NO_ERROR),
    api(28, "TxnOffsetCommit", 3, 5, NO_ERROR),
    api(29, "DescribeAcls", 2, 3, AFTER_THROTTLE),
    api(30, "CreateAcls", 2, 3, NO_ERROR),
    api(31, "DeleteAcls", 2, 3, NO_ERROR),
    api(32, "DescribeConfigs", 4, 4, NO_ERROR),
    api(33, "AlterConfigs", 2, 2, NO_ERROR),
    api(34, "AlterReplicaLogDirs", 2, 2, NO_ERROR),
    api(35, "DescribeLogDirs", 2, 4, after_throttle(0, 3..=i16::MAX)),
    api(36, "SaslAuthenticate", 2, 2, FIRST),
    api(37, "CreatePartitions", 2, 3, NO_ERROR),
    api(38, "CreateDelegationToken", 2, 3, FIRST),
    api(39, "RenewDelegationToken", 2, 2, FIRST),
    api(40, "ExpireDelegationToken", 2, 2, FIRST),
    api(41, "DescribeDelegationToken", 2, 3, FIRST),
    api(42, "DeleteGroups", 2, 2, NO_ERROR),
    api(43, "ElectLeaders", 2, 2, after_throttle(0, 1..=i16::MAX)),
    api(44, "IncrementalAlterConfigs", 1, 1, NO_ERROR),
    api(45, "AlterPartitionReassignments", 0, 1, NO_ERROR),
    api(46, "ListPartitionReassignments", 0, 0, AFTER_THROTTLE),
    api(47, "OffsetDelete", i16::MAX, 0, FIRST),
    api(48, "DescribeClientQuotas", 1, 1, AFTER_THROTTLE),
    api(49, "AlterClientQuotas", 1, 1, NO_ERROR),
    api(50, "DescribeUserScramCredentials", 0, 0, AFTER_THROTTLE),
    api(51, "AlterUserScramCredentials", 0, 0, NO_ERROR),
    api(52, "Vote", 0, 2, FIRST),
    api(53, "BeginQuorumEpoch", 1, 1, FIRST),
    api(54, "EndQuorumEpoch", 1, 1, FIRST),
    api(55, "DescribeQuorum", 0, 2, FIRST),
    api(56, "AlterPartition", 0, 3, AFTER_THROTTLE),
    api(57, "UpdateFeatures", 0, 2, AFTER_THROTTLE),
    api(58, "Envelope", 0, 0, NO_ERROR),
    api(59, "FetchSnapshot", 0, 1, AFTER_THROTTLE),
    api(60, "DescribeCluster", 0, 2, AFTER_THROTTLE),
    api(61, "DescribeProducers", 0, 0, NO_ERROR),
    api(62, "BrokerRegistration", 0, 4, AFTER_THROTTLE),
    api(63, "BrokerHeartbeat", 0, 1, AFTER_THROTTLE),
    api(64, "UnregisterBroker", 0, 0, AFTER_THROTTLE),
    api(65, "DescribeTransactions", 0, 0, NO_ERROR),
    api(66, "ListTransactions", 0, 2, AFTER_THROTTLE),
    api(67, "AllocateProducerIds", 0, 0, AFTER_THROTTLE),
    api(68, "ConsumerGroupHeartbeat", 0, 1, AFTER_THROTTLE),
    api(69, "ConsumerGroupDescribe", 0, 1, NO_ERROR),
    api(70, "ControllerRegistration", 0, 0, AFTER_THROTTLE),
    api(71, "GetTelemetrySubscriptions", 0, 0, AFTER_THROTTLE),
    api(72, "PushTelemetry", 0, 0, AFTER_THROTTLE),
    api(73, "AssignReplicasToDirs", 0, 0, AFTER_THROTTLE),
    api(74, "ListConfigResources", 0, 1, AFTER_THROTTLE),
    api(75, "DescribeTopicPartitions", 0, 0, NO_ERROR),
    api(76, "ShareGroupHeartbeat", 0, 1, AFTER_THROTTLE),
    api(77, "ShareGroupDescribe", 0, 1, NO_ERROR),
    api(78, "ShareFetch", 0, 1, AFTER_THROTTLE),
    api(79, "ShareAcknowledge", 0, 1, AFTER_THROTTLE),
    api(80, "AddRaftVoter", 0, 0, AFTER_THROTTLE),
    api(81, "RemoveRaftVoter", 0, 0, AFTER_THROTTLE),
    api(82, "UpdateRaftVoter", 0, 0, AFTER_THROTTLE),
    api(83, "InitializeShareGroupState", 0, 0, NO_ERROR),
    api(84, "ReadShareGroupState", 0, 0, NO_ERROR),
    api(85, "WriteShareGroupState", 0, 0, NO_ERROR),
    api(86, "DeleteShareGroupState", 0, 0, NO_ERROR),
    api(87, "ReadShareGroupStateSummary", 0, 0, NO_ERROR),
    api(88, "StreamsGroupHeartbeat", 0, 0, AFTER_THROTTLE),
    api(89, "StreamsGroupDescribe", 0, 0, NO_ERROR),
    api(90, "DescribeShareGroupOffsets", 0, 0, NO_ERROR),
    api(91, "AlterShareGroupOffsets", 0, 0, AFTER_THROTTLE),
    api(92, "DeleteShareGroupOffsets", 0, 0, AFTER_THROTTLE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_keys() {
        for (key, api) in (0..).zip(&APIS) {
            assert_eq!(api.key, key, "{}", api.name);
        }
    }
}
