"""train --tensorboard: TensorBoard's own reader finds the losses of --log, over a kill and a resume. Needs tensorboard."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import reference_python

reference_python.need("tensorboard")
from program import NANO, TrainTest, last_save, lines_of, start, wait_for_save, wait_for_step  # pylint: disable=wrong-import-position
from tensorboard.backend.event_processing import event_accumulator  # pylint: disable=wrong-import-position


class Reader(TrainTest):
    def curves(self, board):
        reader = event_accumulator.EventAccumulator(board, size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}

    def compare(self, board, log):
        steps = {line["step"]: line for line in lines_of(log) if "loss" in line}
        tests = {line["step"]: line for line in lines_of(log) if "validation_loss" in line}
        curves = self.curves(board)
        self.assertEqual(sorted(curves), ["train/gradient_norm", "train/learning_rate", "train/loss",
                                          "train/tokens_per_second", "validation/loss"])
        for tag, key, lines in (("train/loss", "loss", steps), ("train/gradient_norm", "grad_norm", steps),
                                ("train/learning_rate", "lr", steps), ("validation/loss", "validation_loss", tests)):
            self.assertEqual([step for step, _ in curves[tag]], sorted(lines), tag)
            for step, value in curves[tag]:
                self.assertAlmostEqual(value / lines[step][key], 1, delta=2**-23, msg=f"{tag} at {step}")
        for step, value in curves["train/tokens_per_second"]:
            self.assertAlmostEqual(value * steps[step]["seconds"] / steps[step]["tokens"], 1, delta=1e-2)

    def test_tensorboard_shows_the_curves_of_a_run_and_of_its_resume(self):
        folder, board = self.path("run"), self.path("board")
        process = start("train", *NANO, "--data", self.corpus(), "--validation", self.corpus(20), "--steps", 100000, "--save-every", 5,
                        "--save", folder, "--tensorboard", board)
        wait_for_save(process, folder)
        wait_for_step(process, folder, last_save(folder) + 2)  # repeated after the resume, if not yet saved
        process.kill()
        process.communicate()
        last = max(line["step"] for line in lines_of(os.path.join(folder, "steps.jsonl")) if "loss" in line)
        self.resumed(folder, "--steps", last + 6, "--tensorboard", board)
        self.compare(board, os.path.join(folder, "steps.jsonl"))

    def test_tensorboard_reads_each_file_by_itself(self):
        board, log = self.path("board"), self.path("log")
        self.train("--steps", 9, "--save", "none", "--log", log, "--validation", self.corpus(20), "--validation-every", 4,
                   "--tensorboard", board)
        (name,) = os.listdir(board)
        self.compare(os.path.join(board, name), log)


if __name__ == "__main__":
    unittest.main()
