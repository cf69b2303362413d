"""What is found out about scores on labelled questions: by a calibration's report and by an evaluation."""
