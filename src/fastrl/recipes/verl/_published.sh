# What the published runs share: Qwen2.5-VL-7B, all weights, 8 GPUs a node.
published=(
  # 256 prompts x 8 rollouts a step, 4 updates of 64 prompts, that is of 512 rollouts.
  data.train_batch_size=256
  actor_rollout_ref.rollout.n=8
  actor_rollout_ref.actor.ppo_mini_batch_size=64
  actor_rollout_ref.actor.ppo_epochs=1

  actor_rollout_ref.model.path=Qwen/Qwen2.5-VL-7B-Instruct
  actor_rollout_ref.actor.optim.lr=1e-6
  actor_rollout_ref.actor.optim.lr_scheduler_type=constant
  actor_rollout_ref.actor.optim.lr_warmup_steps=0
  actor_rollout_ref.actor.optim.weight_decay=0.01
  actor_rollout_ref.actor.optim.clip_grad=1.0
  actor_rollout_ref.actor.entropy_coeff=0
  algorithm.adv_estimator=grpo
  algorithm.norm_adv_by_std_in_grpo=True
  algorithm.use_kl_in_reward=False
  critic.enable=False

  # Training at temperature 1, validation at 0.6 and top-p 0.95.
  actor_rollout_ref.rollout.temperature=1.0
  actor_rollout_ref.rollout.top_p=1.0
  actor_rollout_ref.rollout.val_kwargs.do_sample=True
  actor_rollout_ref.rollout.val_kwargs.temperature=0.6
  actor_rollout_ref.rollout.val_kwargs.top_p=0.95
  actor_rollout_ref.rollout.val_kwargs.n=1

  # 1 for the answer, 0.5 for the format.
  reward.custom_reward_function.path=pkg://fastrl.geometry.rewards
  reward.custom_reward_function.name=compute_scores

  # FastRL as published; the library's defaults are "exact" and fixed rollouts.
  +trainer.fastrl.prune_rule=differential
  +trainer.fastrl.similarity_threshold=0.2
  +trainer.fastrl.weighting=kept
  +trainer.fastrl.adaptive_rollouts=True

  # A prompt is never cut: longer ones are left out. Pixel limits stand in the data files.
  data.max_prompt_length=2048
  data.filter_overlong_prompts=True
  data.filter_overlong_prompts_workers=8
  data.truncation=error
  data.seed=1
)
# How it is laid out on GPUs of 80 GB: our choice, not published.
layout=(
  trainer.n_gpus_per_node=8
  actor_rollout_ref.actor.strategy=fsdp2
  actor_rollout_ref.ref.strategy=fsdp2
  actor_rollout_ref.ref.fsdp_config.param_offload=True
  actor_rollout_ref.model.use_remove_padding=True
  actor_rollout_ref.model.enable_gradient_checkpointing=True
  # Micro-batches by tokens: pruned batches then need no more rows than GPUs x updates divide.
  actor_rollout_ref.actor.use_dynamic_bsz=True
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192
  actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=16384
  actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=16384

  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5

  "trainer.logger=[console]"
  trainer.project_name=fastrl
  trainer.max_actor_ckpt_to_keep=3
)
