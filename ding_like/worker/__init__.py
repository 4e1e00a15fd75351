"""Export the parts that do the work; each name is imported when it is first used.

The table is the one place that may point upward: the parallel pipeline's classes have their home above this level.
"""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

_NAMES = {
    "worker.collector.base": "ISerialCollector create_serial_collector get_serial_collector_cls",
    "worker.collector.battle": "BattleEpisodeSerialCollector BattleSampleSerialCollector",
    "worker.collector.single": "EpisodeSerialCollector SampleSerialCollector",
    "data.rows": "to_tensor_transitions",
    "worker.evaluator": """
        BattleInteractionSerialEvaluator IMetric InteractionSerialEvaluator ISerialEvaluator MetricSerialEvaluator
        VectorEvalMonitor create_serial_evaluator
    """,
    "worker.learner": "BaseLearner create_learner",
    "worker.learner_hooks": """
        LearnerHook add_learner_hook build_learner_hook_by_cfg merge_hooks register_learner_hook
    """,
    "worker.replay_buffer.buffer": "IBuffer ReplayBuffer",
    "worker.replay_buffer.presets": """
        AdvancedReplayBuffer EpisodeReplayBuffer NaiveReplayBuffer PrioritisedSequenceReplayBuffer SequenceReplayBuffer
        create_buffer create_pipeline_buffer get_buffer_cls
    """,
    "worker.commander": "BaseSerialCommander create_parallel_commander",
    "pipeline.parallel.coordinator": "Coordinator",
    "pipeline.learners.synced": "LearnerAggregator",
    "pipeline.parallel.comm_collector": """
        BaseCommCollector BaseParallelCollector FlaskFileSystemCollector MarineParallelCollector NaiveCollector
        ZerglingParallelCollector create_comm_collector
    """,
    "pipeline.parallel.comm_learner": "BaseCommLearner FlaskFileSystemLearner create_comm_learner",
}
_HOMES = {name: f"ding_like.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
