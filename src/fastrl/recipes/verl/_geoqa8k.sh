# The data: about 8000 prompts, 31 steps an epoch; checkpoint and validation once an epoch.
dataset=(
  data.max_response_length=4096
  trainer.total_epochs=15
  trainer.save_freq=31
  trainer.test_freq=31
)
