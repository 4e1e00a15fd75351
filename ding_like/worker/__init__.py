"""Export the parts that do the work; each name is imported when it is first used.

The table is the one place that may point upward: the parallel pipeline's classes have their home above this level.
"""

from __future__ import annotations

from ding_like.utils.imports import lazy_exports

_COLLECTOR = "ding_like.worker.collector"
_EVALUATOR = "ding_like.worker.evaluator"
_LEARNER = "ding_like.worker.learner"
_BUFFER = "ding_like.worker.replay_buffer"
_PARALLEL = "ding_like.pipeline.parallel"

_HOME_OF: dict[str, str] = {
    "ISerialCollector": _COLLECTOR,
    "EpisodeSerialCollector": _COLLECTOR,
    "SampleSerialCollector": _COLLECTOR,
    "BattleEpisodeSerialCollector": _COLLECTOR,
    "BattleSampleSerialCollector": _COLLECTOR,
    "create_serial_collector": _COLLECTOR,
    "get_serial_collector_cls": _COLLECTOR,
    "to_tensor_transitions": _COLLECTOR,
    "ISerialEvaluator": _EVALUATOR,
    "InteractionSerialEvaluator": _EVALUATOR,
    "BattleInteractionSerialEvaluator": _EVALUATOR,
    "IMetric": _EVALUATOR,
    "MetricSerialEvaluator": _EVALUATOR,
    "VectorEvalMonitor": _EVALUATOR,
    "create_serial_evaluator": _EVALUATOR,
    "BaseLearner": _LEARNER,
    "LearnerHook": _LEARNER,
    "add_learner_hook": _LEARNER,
    "build_learner_hook_by_cfg": _LEARNER,
    "create_learner": _LEARNER,
    "merge_hooks": _LEARNER,
    "register_learner_hook": _LEARNER,
    "IBuffer": _BUFFER,
    "AdvancedReplayBuffer": _BUFFER,
    "NaiveReplayBuffer": _BUFFER,
    "SequenceReplayBuffer": _BUFFER,
    "EpisodeReplayBuffer": _BUFFER,
    "PrioritisedSequenceReplayBuffer": _BUFFER,
    "ReplayBuffer": _BUFFER,
    "create_buffer": _BUFFER,
    "create_pipeline_buffer": _BUFFER,
    "get_buffer_cls": _BUFFER,
    "BaseSerialCommander": "ding_like.worker.commander",
    "create_parallel_commander": "ding_like.worker.commander",
    "Coordinator": f"{_PARALLEL}.coordinator",
    "LearnerAggregator": f"{_PARALLEL}.learner_aggregator",
    "BaseParallelCollector": f"{_PARALLEL}.zergling",
    "MarineParallelCollector": f"{_PARALLEL}.zergling",
    "ZerglingParallelCollector": f"{_PARALLEL}.zergling",
    "BaseCommCollector": f"{_PARALLEL}.comm_collector",
    "FlaskFileSystemCollector": f"{_PARALLEL}.comm_collector",
    "create_comm_collector": f"{_PARALLEL}.comm_collector",
    "NaiveCollector": f"{_PARALLEL}.comm_collector",
    "BaseCommLearner": f"{_PARALLEL}.comm_learner",
    "FlaskFileSystemLearner": f"{_PARALLEL}.comm_learner",
    "create_comm_learner": f"{_PARALLEL}.comm_learner",
}

__all__ = list(_HOME_OF)

__getattr__, __dir__ = lazy_exports(__name__, _HOME_OF)
